"""`read`: the meaning of a failed request to a bucket.

Owns the reading of obstore's errors, whose text has status and code of the reply. From that text
only these two are passed on: replies of some servers repeat keys and signatures. The text is
obstore's own, so `tests/ship/test_bucket.py` reads replies of real servers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from falaj.errors import PlaceDenied, PlaceFull, PlaceNotFound, PlaceUnreachable

if TYPE_CHECKING:
    from falaj.errors import Error

__all__ = ["Refusal", "read"]

_STATUS = re.compile(r"(?:status code|status|HTTP)\D{0,4}\b([1-5]\d\d)\b")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>|\"(?:reason|code)\": ?\"(\w{1,60})\"")
_CONTAINERS = {"NoSuchBucket", "ContainerNotFound", "InvalidBucketName"}
_FULL = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "AccountIsFull"}
_DENIED = {"ExpiredToken", "InvalidToken", "AuthorizationHeaderMalformed", "TokenRefreshRequired"}
_FOR_CREDENTIALS = (
    "/latest/api/token",
    "/latest/meta-data/",
    "/computeMetadata/",
    "/metadata/identity/",
    "//169.254.",
    "token request",
    "AssumeRole",
    "credential provider",
)
"""Parts of the first line of an error when the request was one for credentials."""


_BELONG = {
    "S3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "GCS": "GOOGLE_APPLICATION_CREDENTIALS, the path of a key file",
    "MicrosoftAzure": "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY",
}
"""Variables for credentials, by the kind of bucket: an error begins with `Generic` and that."""
_OF_CALLER = re.compile(r"External (?:AWS|GCP|Azure) credential provider: (\w{1,60})")
"""The part of the error where the caller's function for credentials raised one of this type."""
_NO_TLS = "InvalidContentType"
"""A part of the error where the answer to the first message of TLS is no TLS."""


@dataclass(frozen=True)
class Refusal:
    """The meaning of a failed request.

    Attributes:
        kind: The class of the error to raise.
        text: What the place said, and what to do.
        is_missing: There is a bucket, and no such object.
        is_certain: Nothing was created.
        is_unsent: The request was not sent, for want of credentials.
        is_behind_the_end: The range begins behind the object's last byte.
    """

    kind: type[Error]
    text: str
    is_missing: bool = False
    is_certain: bool = False
    is_unsent: bool = False
    is_behind_the_end: bool = False


def read(failed: Exception, *, creates: bool = False, lists: bool = False) -> Refusal:
    """Read an error of obstore.

    Args:
        failed: The error.
        creates: The request was a create, for which 404 speaks of the bucket.
        lists: It was a listing, likewise.
    """
    said = str(failed)
    if caller := _OF_CALLER.search(said.partition("\n")[0]):
        # The rest is the caller's own text, and says nothing of the place.
        text = (
            "no credentials were to be had: the function credentials= raised "
            f"{caller[1]}; call it to see why"
        )
        return Refusal(PlaceDenied, text, is_certain=True, is_unsent=True)
    status_match, code_match = _STATUS.search(said), _CODE.search(said)
    status = int(status_match[1]) if status_match else 0
    code = next(filter(None, code_match.groups()), "") if code_match else ""
    name = type(failed).__name__
    heard = " ".join(filter(None, (str(status or ""), code))) or _manner(said)
    if any(part in said.partition("\n")[0] for part in _FOR_CREDENTIALS):
        fit = [names for sign, names in _BELONG.items() if said.startswith(f"Generic {sign}")]
        names = "; or ".join(fit or _BELONG.values())
        text = (
            f"no credentials were to be had ({heard}): set {names}, or let this machine have a role"
        )
        return Refusal(PlaceDenied, text, is_certain=True, is_unsent=True)
    if _NO_TLS in said:
        text = "the endpoint speaks no TLS: write http:// in it instead of https://"
        return Refusal(PlaceNotFound, text, is_certain=True)
    is_missing = isinstance(failed, FileNotFoundError) or status == 404
    if "container does not exist" in said:  # a deletion of many has no code in its reply
        code = "ContainerNotFound"
    if code in _CONTAINERS or (is_missing and (creates or lists)):
        text = f"there is no such bucket ({heard}): create it, or correct the URL"
        return Refusal(PlaceNotFound, text, is_certain=True)
    if is_missing:
        return Refusal(PlaceNotFound, f"there is no such object ({heard})", is_missing=True)
    denied = name in ("PermissionDeniedError", "UnauthenticatedError")
    if denied or status in (401, 403) or code in _DENIED:
        text = f"the place refuses these credentials ({heard}): renew them, or grant the right"
        return Refusal(PlaceDenied, text, is_certain=True)
    if status == 507 or code in _FULL:
        return Refusal(PlaceFull, f"the place is full ({heard}): free space", is_certain=True)
    if status in (301, 307) or "redirect" in said:
        text = f"the bucket is elsewhere ({heard}): name its region or endpoint"
        return Refusal(PlaceNotFound, text, is_certain=True)
    text = f"the place gave no answer that helps ({heard}); try again later"
    return Refusal(PlaceUnreachable, text, is_behind_the_end=status == 416)


def _manner(said: str) -> str:
    """Say how a request failed that got no reply."""
    for sign, manner in (
        ("certificate", "its certificate is not trusted"),
        ("kind: Connect", "no connection"),
        ("kind: Timeout", "timed out"),
        ("kind: Interrupted", "connection lost"),
        ("already exists", "already exists"),
    ):
        if sign in said:
            return manner
    return "request failed"
