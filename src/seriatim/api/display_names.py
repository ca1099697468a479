"""Display names for whatever page is shown: one batch per page, never one read per line."""

from collections.abc import Iterable, Mapping, Sequence

from seriatim.domain import limits
from seriatim.domain.account import User
from seriatim.ports.accounts import Accounts


class DisplayNames:
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def of(self, user_ids: Iterable[str]) -> Mapping[str, str | None]:
        """The display name of each; None for a user without one, and for an unknown id."""
        wanted = list(dict.fromkeys(user_ids))
        found = await self._users(wanted)
        return {each: found[each].display_name if each in found else None for each in wanted}

    async def missing(self, user_ids: Sequence[str]) -> Sequence[str]:
        """The ids that no user has, in the order given."""
        found = await self._users(user_ids)
        return [each for each in user_ids if each not in found]

    async def _users(self, user_ids: Sequence[str]) -> Mapping[str, User]:
        found: dict[str, User] = {}
        for start in range(0, len(user_ids), limits.LOOKUP_KEYS_MAX):
            batch = user_ids[start : start + limits.LOOKUP_KEYS_MAX]
            found.update(await self._accounts.users(batch, timeout_s=limits.API_TIMEOUT_S))
        return found
