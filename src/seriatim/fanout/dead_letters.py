"""Records that cannot be handled: written to the dead letters with the reason, for an operator to read."""

from seriatim.domain import limits
from seriatim.fanout.observer import FanoutObserver
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import DeadLetter, DeadLetterWriter, Record


class DeadLetters:
    def __init__(
        self,
        writer: DeadLetterWriter,
        clock: Clock,
        *,
        consumer_group: str,
        consumer_id: str,
        observe: FanoutObserver,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._consumer_group = consumer_group
        self._consumer_id = consumer_id
        self._observe = observe

    def dead_letter(self, record: Record, error: Exception, attempts: int) -> DeadLetter:
        return DeadLetter(
            record=record,
            reason=_reason(error),
            attempts=attempts,
            consumer_group=self._consumer_group,
            consumer_id=self._consumer_id,
            failed_at_ms=self._clock.now_ms(),
        )

    async def write(self, dead_letter: DeadLetter) -> bool:
        """One try. True once the dead letter is safe; until then its record must not be passed."""
        try:
            await self._writer.write(dead_letter, timeout_s=limits.PUBLISH_TIMEOUT_S)
        except Exception:
            # Whatever went wrong, the record is in no other place yet, so every failure counts the same.
            self._observe.dead_letter_failed(dead_letter.record.partition)
            return False
        self._observe.dead_letter_written()
        return True


def _reason(error: Exception) -> str:
    """`Class: text`. The text may quote a record that no encoder accepts; this one can be written."""
    text = f"{type(error).__name__}: {error}"[: limits.DEAD_LETTER_REASON_CHARS_MAX]
    return text.encode(errors="replace").decode()
