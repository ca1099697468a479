"""The REST edge: sign-in, people, chats, members, history, delivery state.

It checks who may do what before it asks a store, whose conditions check it again; durable order is decided elsewhere.
"""
