"""Keys kept in files, and what rests on them: access tokens, seals, one-time codes, page cursors."""
