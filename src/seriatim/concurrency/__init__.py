"""Helpers for asyncio that know nothing of chats. Every package may import them."""
