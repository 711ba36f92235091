"""What is wrong with a session, and how to mend it: by appending where that can be done, in a new file otherwise."""

from contexthost.diagnosis.findings import Diagnosis, Finding, diagnose, examine
from contexthost.diagnosis.repair import repair
from contexthost.diagnosis.rescue import Rescue, plan_rescue, preview_rescue, write_rescue

__all__ = [
    "Diagnosis",
    "Finding",
    "Rescue",
    "diagnose",
    "examine",
    "plan_rescue",
    "preview_rescue",
    "repair",
    "write_rescue",
]
