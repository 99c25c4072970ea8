from eopipe.inspection.chip_dataset import open_chips as open_chips
from eopipe.inspection.cube import open_cube as open_cube
from eopipe.inspection.models import load_model as load_model
from eopipe.inspection.models import save_model as save_model
from eopipe.inspection.run_metrics import read_metrics as read_metrics

__version__: str
API: dict[str, str]
