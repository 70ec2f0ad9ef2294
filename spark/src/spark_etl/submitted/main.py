"""The main file for spark-submit: `spark-submit …/spark_etl/submitted/main.py run PIPELINE.yaml`.

It has a folder without other modules, since Python puts the folder of the main file first on its search path.
"""

import sys

from spark_etl.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
