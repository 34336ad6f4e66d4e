"""Posts one message to a webhook: ``python -m relight.resilience.supervise.post``.

Standard input is ``{"url": ..., "message": ...}``. What goes wrong is said in a few words without
the address, which may be a secret.
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

_SILENCE_S: Final = 30.0  # more than the supervisor allows for all


def fault_of(url: object, message: object) -> str | None:
    """Why the message did not get there; None when the server took it."""
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        return "the address is not that of a web server"
    try:
        request = Request(
            url,
            data=json.dumps(message).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "relight"},
        )
        with urlopen(request, timeout=_SILENCE_S):
            return None
    except HTTPError as error:
        error.close()
        return f"the server answered {error.code}"
    except URLError as error:
        reason = error.reason
        return f"no way to the server: {getattr(reason, 'strerror', None) or 'no connection'}"
    except (OSError, ValueError, HTTPException) as error:  # their texts may hold the address
        return f"the server cannot be asked ({type(error).__name__})"


def main() -> int:
    asked = json.load(sys.stdin)
    fault = fault_of(asked["url"], asked["message"])
    if fault is not None:
        sys.stdout.write(fault)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
