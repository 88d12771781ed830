"""What a plug-in answers."""


class Plan:
    """An answer, put together by hand: fire(order).reject(3, 1). None of the parts: what the server would do without a plug-in."""

    def __init__(self, fire=None, wake_in=None, wake_at=None):
        self.fire, self.rejected, self.code, self.wake_in, self.wake_at = fire, [], 0, wake_in, wake_at

    def reject(self, candidate, code):
        """This one is refused now, and its sequence ends. One answer has one code, the last that is given. A plan that rejects is an answer of its
        own: what it does not fire waits, even if it began as the default."""
        if self.fire is None:
            self.fire = []
        self.rejected.append(candidate)
        self.code = code
        return self

    def wake_us(self, now_us):
        """When the server asks again at the latest, if it fires nothing."""
        return self.wake_at if self.wake_in is None else now_us + self.wake_in


def fire(order):
    """These run now, as one batch, in this order."""
    return Plan(list(order))


def wait():
    """Nothing runs until something comes or completes."""
    return Plan([])


def wait_us(micros):
    """Nothing runs until something comes or completes, or so many microseconds have passed."""
    return Plan([], wake_in=int(micros))


def wait_until_us(at):
    """Nothing runs until something comes or completes, or this time of round.now_us has come."""
    return Plan([], wake_at=int(at))


def default():
    """What the server would do without a plug-in."""
    return Plan()


class Admission:
    """What becomes of one sequence that waits for a slot."""

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
    """It waits on."""
    return Admission("defer")


def refuse(code):
    """It is refused, with the plug-in's own number for why."""
    return Admission("reject", code)


def in_order(waiting, room):
    """Whoever waits longest takes what is free, from the instance with the most room."""
    room, said = list(room), []
    while len(said) < waiting and any(room):
        most = room.index(max(room))
        room[most] -= 1
        said.append(take(most))
    return said
