"""Answers of a plug-in."""


class Plan:
    """An answer: fire(order).reject(3, 1). Its `fire` is None if it leaves the round to the built-in policy. `rejected` has (candidate, code, ends)."""

    def __init__(self, fire=None, wake_in=None, wake_at=None):
        self.fire, self.rejected, self.wake_in, self.wake_at = fire, [], wake_in, wake_at

    def reject(self, candidate, code):
        """Refuses a candidate, and ends its sequence. Clients read `code`, and what plugin.toml says of it. A plan that refuses a candidate decides the
        whole round: candidates that it does not fire wait, even if it began as the default."""
        return self._refuse(candidate, code, True)

    def shed(self, candidate, code):
        """Refuses this step of a candidate, and lets its sequence go on. A refused START ends its sequence all the same."""
        return self._refuse(candidate, code, False)

    def _refuse(self, candidate, code, ends):
        if self.fire is None:
            self.fire = []
        self.rejected.append((candidate, code, ends))
        return self

    def wake_us(self, now_us):
        """The time of the next question at the latest, if nothing runs now."""
        return self.wake_at if self.wake_in is None else now_us + self.wake_in


def fire(order):
    """These candidates run now as one batch, in this order."""
    return Plan(list(order))


def wait():
    """Nothing runs until a request arrives or completes."""
    return Plan([])


def wait_us(micros):
    """Nothing runs for this many microseconds, or until a request arrives or completes."""
    return Plan([], wake_in=int(micros))


def wait_until_us(at):
    """Nothing runs until this time of round.now_us, or until a request arrives or completes."""
    return Plan([], wake_at=int(at))


def default():
    """Leaves the round to the built-in policy."""
    return Plan()


class Admission:
    """The answer for one sequence that waits for a slot."""

    def __init__(self, what, number=0):
        self.what, self.number = what, number

    def __eq__(self, other):
        return (self.what, self.number) == (other.what, other.number)

    def __repr__(self):
        return f"{self.what}({self.number})"


def take(instance):
    """It gets a free slot of this instance."""
    return Admission("take", instance)


def evict(victim):
    """It gets the slot of this victim (an index), whose sequence ends as evicted."""
    return Admission("evict", victim)


def defer():
    """It goes on waiting."""
    return Admission("defer")


def reject(code):
    """Its START is refused, with the plug-in's code for the reason."""
    return Admission("reject", code)


def in_order(waiting, room):
    """Gives the free slots to the sequences that wait longest, from the instance with the most room."""
    room, said = list(room), []
    while len(said) < waiting and any(room):
        most = room.index(max(room))
        room[most] -= 1
        said.append(take(most))
    return said
