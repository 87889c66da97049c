"""How long a replica was at each of its batches, where several are under way at once."""


class Meter:
    """Shares time equally between the batches under way, so that their shares add up to the time in which there were any.

    The meter advances by dt / n while n batches are under way: a batch's share is what the meter advanced meanwhile. This
    is the accounting of processor sharing (the virtual time of fair queueing). Times are in seconds, of one clock.
    """

    def __init__(self) -> None:
        self._reading = 0.0
        self._under_way = 0
        self._at = 0.0

    def begin(self, now: float) -> float:
        """A batch was sent. Returns the reading, for `end`."""
        self._advance(now)
        self._under_way += 1
        return self._reading

    def end(self, now: float, reading: float) -> float:
        """That batch was answered, or failed. Returns its share."""
        self._advance(now)
        self._under_way -= 1
        return self._reading - reading

    def _advance(self, now: float) -> None:
        if self._under_way:
            self._reading += (now - self._at) / self._under_way
        self._at = now
