"""DynamoDB Local, on disk: what it has answered for survives a kill. Any key id and secret will do."""

import http.client
from typing import ClassVar

from tools.engines.engine import Engine, require_program
from tools.engines.install import DYNAMODB, installed
from tools.engines.java import java, require_java
from tools.engines.ports import HOST

PROBE_S_MAX = 5.0
KEY_ID, SECRET, REGION = "local", "local", "us-east-1"


class DynamoDB(Engine):
    name: ClassVar[str] = "DynamoDB Local"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def require(self) -> None:
        require_program(self.name, "setpriv", "util-linux")
        require_java(self.name)
        installed(DYNAMODB)

    def prepare(self) -> None:
        (self.folder / "data").mkdir()

    def command(self) -> list[str]:
        home = installed(DYNAMODB)
        libraries = home / "lib"
        return [
            *java(home / "classes", libraries / "*", properties={"java.library.path": str(libraries)}),
            "LoopbackDynamoDB",
            *("-port", str(self.port)),
            *("-dbPath", str(self.folder / "data")),
            "-sharedDb",
            "-disableTelemetry",
        ]

    def answers(self) -> bool:
        status, _body = call(self.port, "ListTables", b"{}")
        return status == http.HTTPStatus.OK


def call(port: int, operation: str, body: bytes) -> tuple[int, bytes]:
    """One operation, signed by nobody: DynamoDB Local reads the key id and looks no further."""
    scope = f"{KEY_ID}/20260101/{REGION}/dynamodb/aws4_request"
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=none",
    }
    connection = http.client.HTTPConnection(HOST, port, timeout=PROBE_S_MAX)
    try:
        connection.request("POST", "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"DynamoDB Local did not speak HTTP: {error!r}") from error
    finally:
        connection.close()
