"""`--set a.b=c`: finds the key of the settings file that an override sets.

Names below `topics`, `source.options` and `spark` contain dots, so a key is not simply split at its dots:
`topics.flights.segment.bytes=1000000` is the property `segment.bytes` of the topic `flights`.
"""

from collections.abc import Collection, MutableMapping

from sparklog.storage_core.log_config import LogConfig

__all__ = ["apply_override", "split_key"]


def split_key(key: str, topics: Collection[str] = ()) -> list[str]:
    """Return the names from the file's top down to the setting.

    Below `topics` the topic is the longest declared one that fits; for an undeclared topic, the property is Kafka's
    longest one that ends the key. `spark.x.y` is the Spark setting of that full name.

    Args:
        key: the text left of `=`.
    """
    head, dot, rest = key.partition(".")
    if not dot:
        return [head]
    if head == "topics":
        return [head, *_split_topic(rest, topics)]
    if head == "spark":
        return [head, rest if rest.startswith("spark.") else key]
    if head == "source" and rest.startswith("options."):
        return [head, "options", rest.removeprefix("options.")]
    return [head, *rest.split(".")]


def apply_override(tree: MutableMapping[object, object], key: str, value: object) -> str | None:
    """Set one key of a settings tree; makes missing mappings on the way.

    Args:
        tree: the file's content, changed in place; its inner mappings are dicts.
        key: full key, e.g. `topics.flights.segment.bytes`.

    Returns:
        The problem, or None.
    """
    declared = tree.get("topics")
    names = split_key(key, [str(name) for name in declared] if isinstance(declared, dict) else [])
    if not all(names):
        return f"{key}: is not a key"
    place = tree
    for depth, name in enumerate(names[:-1], 1):
        if place.get(name) is None:
            place[name] = {}
        below = place[name]
        if not isinstance(below, dict):
            return f"{key}: {'.'.join(names[:depth])} is not a mapping"
        place = below
    place[names[-1]] = value
    return None


def _split_topic(rest: str, topics: Collection[str]) -> list[str]:
    fitting = [topic for topic in topics if rest.startswith(f"{topic}.")]
    if fitting:
        topic = max(fitting, key=len)
        return [topic, rest[len(topic) + 1 :]]
    endings = [name for name in (*LogConfig.property_names(), "partitions") if rest.endswith(f".{name}")]
    if endings:
        ending = max(endings, key=len)
        return [rest[: -len(ending) - 1], ending]
    topic, dot, name = rest.partition(".")
    return [topic, name] if dot else [topic]
