"""Arguments that are text."""


def is_text(argument: str) -> bool:
    """Return whether the argument is text: Python makes surrogates of bytes that are no text."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True
