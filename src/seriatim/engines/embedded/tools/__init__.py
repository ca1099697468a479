"""What commands read from a data folder, beside the server that has it open."""
