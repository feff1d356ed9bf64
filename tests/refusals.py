"""What a line that refuses a deployment file must look like."""

import re

from deployment import Deployment


def names_a_key(line: str) -> bool:
    """Whether a problem begins with its key, from the top of the file.

    ``key: ...`` and ``key.inner: ...`` where one key is wrong, ``key.inner ...`` or ``key_of ...``
    where it is wrong beside another one. A key that no file has must be called unknown.
    """
    if re.match(r"(.*: )?unknown setting (['\"]).*\2; (did you mean|known:) ", line):
        return True
    begins = re.match(r"(\w+)(\.|: )|(\w+_\w+) ", line)
    return begins is not None and (begins[1] or begins[3]) in Deployment.model_fields
