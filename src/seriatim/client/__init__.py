"""The client SDK: imports the protocol and the domain, nothing else of ours."""
