"""Users over REST: the caller, others by id, and which phone numbers of an address book belong to users."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from seriatim.api.core.fields import PhoneNumber, Time, check_phone
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.rate_limit import Bucket
from seriatim.api.core.route import ApiRequest, ApiResponse, Route
from seriatim.domain import limits
from seriatim.domain.account import User, is_display_name
from seriatim.domain.errors import NotFound, ValidationFailed
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock

_Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.DISPLAY_NAME_CHARS_MAX,
        description="No space at either end, no control characters.",
        examples=["Ada"],
    ),
]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str
    phone_number: PhoneNumber
    display_name: str | None
    created_at: Time
    updated_at: Time


class UserProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What others see of a user."""

    user_id: str
    display_name: str | None
    created_at: Time


class ProfileChange(msgspec.Struct, frozen=True, kw_only=True):
    display_name: _Name


class PhoneLookup(msgspec.Struct, frozen=True, kw_only=True):
    phone_numbers: Annotated[list[PhoneNumber], Meta(min_length=1, max_length=limits.LOOKUP_PHONES_MAX)]


class FoundUser(msgspec.Struct, frozen=True, kw_only=True):
    phone_number: PhoneNumber
    user_id: str
    display_name: str | None


class PhoneLookupResult(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the request, each number once."""

    users: list[FoundUser]
    not_found: list[PhoneNumber]


def routes(service: "UserResource") -> Sequence[Route]:
    return [
        Route(
            method="GET",
            path="/users/me",
            handler=service.me,
            summary="Who am I",
            tag="users",
            answers={200: Me},
            errors=(NotFound,),
        ),
        Route(
            method="PATCH",
            path="/users/me",
            handler=service.change,
            summary="Change my profile",
            tag="users",
            body=ProfileChange,
            answers={200: Me},
            errors=(NotFound,),
        ),
        Route(
            method="GET",
            path="/users/{user_id}",
            handler=service.get,
            summary="One user",
            tag="users",
            answers={200: UserProfile},
            errors=(NotFound,),
        ),
        Route(
            method="POST",
            path="/users/lookup",
            handler=service.lookup,
            summary="Find users by phone number",
            description="Every lookup is in the audit log, and takes about a quarter of a second.",
            tag="users",
            body=PhoneLookup,
            answers={200: PhoneLookupResult},
        ),
    ]


class UserResource:
    def __init__(self, accounts: Accounts, clock: Clock, observe: ApiObserver) -> None:
        self._accounts = accounts
        self._clock = clock
        self._observe = observe

    async def me(self, request: ApiRequest[Any, Any]) -> ApiResponse:
        return ApiResponse(data=_me(await self._user(request.caller_id)))

    async def change(self, request: ApiRequest[ProfileChange, Any]) -> ApiResponse:
        name = check_change(request.body)
        changed = await self._accounts.rename_user(
            request.caller_id, name, now_ms=self._clock.now_ms(), timeout_s=limits.API_TIMEOUT_S
        )
        return ApiResponse(data=_me(changed))

    async def get(self, request: ApiRequest[Any, Any]) -> ApiResponse:
        user = await self._user(request.path["user_id"])
        return ApiResponse(
            data=UserProfile(user_id=user.user_id, display_name=user.display_name, created_at=user.created_at)
        )

    async def lookup(self, request: ApiRequest[PhoneLookup, Any]) -> ApiResponse:
        """Takes the same time however many users are found, so that its duration reveals nothing."""
        numbers = [check_phone(each) for each in dict.fromkeys(request.body.phone_numbers)]
        await request.spend(Bucket(name=f"rl:lookup:{request.caller_id}", limit=limits.LOOKUPS_MAX, window_s=60))
        await request.spend(
            Bucket(
                name=f"rl:lookup-hour:{request.caller_id}",
                limit=limits.LOOKUPS_PER_HOUR_MAX,
                window_s=3600,
                sliding=True,
            )
        )
        spread_s = (2 * self._clock.random() - 1) * limits.LOOKUP_PACE_SPREAD_S
        ends = self._clock.monotonic() + limits.LOOKUP_PACE_S + spread_s
        result = await self._find(numbers)
        self._observe.audit(
            "users.lookup", {"user_id": request.caller_id, "asked": len(numbers), "found": len(result.users)}
        )
        await asyncio.sleep(max(0.0, ends - self._clock.monotonic()))
        return ApiResponse(data=result)

    async def _find(self, numbers: Sequence[str]) -> PhoneLookupResult:
        ids = await self._accounts.users_by_phone(numbers, timeout_s=limits.API_TIMEOUT_S)
        users = await self._accounts.users(list(ids.values()), timeout_s=limits.API_TIMEOUT_S)
        found = {number: users[ids[number]] for number in numbers if ids.get(number) in users}
        return PhoneLookupResult(
            users=[
                FoundUser(phone_number=number, user_id=user.user_id, display_name=user.display_name)
                for number, user in found.items()
            ],
            not_found=[number for number in numbers if number not in found],
        )

    async def _user(self, user_id: str) -> User:
        users = await self._accounts.users([user_id], timeout_s=limits.API_TIMEOUT_S)
        if user_id not in users:
            raise NotFound("there is no such user")
        return users[user_id]


def check_change(change: ProfileChange) -> str:
    if not is_display_name(change.display_name):
        raise ValidationFailed(
            "display_name has a space at an end, or control characters",
            field="display_name",
            field_code="INVALID_FORMAT",
        )
    return change.display_name


def _me(user: User) -> Me:
    return Me(
        user_id=user.user_id,
        phone_number=user.phone_number,
        display_name=user.display_name,
        created_at=user.created_at,
        updated_at=user.updated_at,
    )
