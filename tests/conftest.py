"""Environment of every test: Node from the virtual environment, no minute-long CDK validation.

Set here, at import, because both are read when aws_cdk is first imported.
"""

import os
import sys
from pathlib import Path

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
# Only this exact word turns it off. `cdk synth` and `python app.py` leave it on.
os.environ["CDK_VALIDATION"] = "false"
