"""REST: sign-in, users, chats, members, history, delivery state. `app` builds it; each resource has a module.

A resource checks what the caller may do before it calls a store, whose conditions check it again.
"""
