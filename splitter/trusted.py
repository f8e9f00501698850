"""Library names of which it is known what they draw, and that they answer alike in every process.

Not a name of these tables: nobody has looked, so nothing is said about the code that uses it. A name stands for everything below it
as well. Draws themselves are rows of `knowledge`; read in the sources of torch 2.2-2.14, torchvision 0.17-0.29, numpy 1.26-2.4, pandas 2-3.
"""

from __future__ import annotations

TRUSTED = frozenset(
    """
builtins abc argparse.Namespace array ast base64 bisect bz2 collections configparser contextlib copy csv dataclasses decimal difflib enum
fractions functools glob gzip hashlib heapq html io itertools json keyword lzma math numbers operator pickle pprint re statistics string
struct tarfile textwrap tomllib types typing typing_extensions unicodedata urllib.parse xml zipfile zlib uuid.UUID
datetime.date datetime.datetime datetime.timedelta datetime.time datetime.timezone time.sleep
os.path os.sep os.fspath os.linesep os.listdir os.scandir os.walk os.PathLike os.getcwd pathlib
random sys.maxsize sys.version_info sys.platform sys.byteorder sys.float_info sys.path
numpy PIL einops omegaconf yaml pandas toml
torch.nn.functional torch.nn.utils.rnn torch.fft torch.linalg torch.special torch.utils.data torch.load torch.Tensor
torchvision.transforms torchvision.datasets torchvision.io torchvision.ops torchvision.tv_tensors torchvision.utils
torchaudio.load torchaudio.transforms
datasets.load_dataset datasets.load_from_disk datasets.Dataset datasets.DatasetDict datasets.concatenate_datasets datasets.Features
datasets.Value datasets.ClassLabel datasets.Sequence datasets.Image
sklearn.datasets.load_digits sklearn.datasets.load_iris sklearn.datasets.load_wine sklearn.datasets.load_breast_cancer
cv2.imread cv2.imdecode cv2.cvtColor cv2.resize cv2.flip cv2.rotate cv2.copyMakeBorder cv2.threshold cv2.warpAffine cv2.warpPerspective
cv2.getRotationMatrix2D cv2.GaussianBlur cv2.blur cv2.medianBlur cv2.split cv2.merge cv2.addWeighted cv2.LUT cv2.dilate cv2.erode
scipy.io scipy.ndimage scipy.signal scipy.fft scipy.interpolate scipy.sparse.csr_matrix scipy.sparse.csc_matrix scipy.sparse.coo_matrix
skimage.io skimage.transform skimage.color imageio.imread imageio.v2.imread imageio.v3.imread medmnist
""".split()
)
# Longer names win: these are below trusted ones, and not trusted.
DOUBTFUL = frozenset(
    """
builtins.id builtins.hash builtins.input builtins.eval builtins.exec builtins.vars builtins.globals builtins.locals
builtins.compile builtins.__import__ builtins.setattr builtins.delattr builtins.print
operator.attrgetter operator.methodcaller statistics.NormalDist random.SystemRandom
datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow datetime.date.today
numpy.random.BitGenerator numpy.testing numpy.ctypeslib numpy.core numpy.lib PIL.Image.effect_noise PIL.ImageGrab PIL.ImageTk
torch.utils.data.get_worker_info torch.utils.data._utils torch.utils.data.IterableDataset torch.utils.data.datapipes torch.utils.data.graph
torch.nn.functional.multi_head_attention_forward
torchvision.datasets.samplers torchvision.datasets.LSUN torchvision.datasets.Middlebury2014Stereo torchvision.datasets.video_utils
torchvision.io.VideoReader torchvision.ops.misc torchvision.transforms.v2.functional.gaussian_noise
torchvision.transforms.v2.functional.gaussian_noise_image torchvision.transforms.v2.functional.gaussian_noise_video
torchaudio.transforms.GriffinLim scipy.io.wavfile.write pandas.util pandas.io
""".split()
)
# Of torch itself every lower-case function, but for these: some draw in ways that `knowledge` has no row for, some answer for the process.
DOUBTFUL_FUNCTIONS = frozenset(
    """
alpha_dropout alpha_dropout_ native_dropout feature_dropout feature_alpha_dropout rrelu rrelu_ dropout_ lstm gru rnn_tanh rnn_relu
svd_lowrank pca_lowrank lobpcg initial_seed seed get_num_threads get_num_interop_threads compile vmap cond
""".split()
)
TORCH_MODULES = frozenset(
    """
accelerator amp ao autograd backends classes compiler cpu cuda distributed export func futures fx hub jit library masked monitor mps mtia
multiprocessing nested nn onnx ops optim overrides package profiler quantization quasirandom random serialization signal sparse storage
testing torch_version utils version xpu functional return_types types cond
""".split()
)
TORCH_NAMES = frozenset(
    "Tensor Size Generator FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ShortTensor ByteTensor BoolTensor".split()
)
TRANSFORMS = frozenset(
    """
CenterCrop Compose ConvertImageDtype FiveCrop Grayscale InterpolationMode Lambda LinearTransformation Normalize PILToTensor Pad Resize
TenCrop ToPILImage ToTensor ClampBoundingBoxes ClampKeyPoints ConvertBoundingBoxFormat Identity RGB SanitizeBoundingBoxes
SanitizeKeyPoints SetClampingMode ToDtype ToImage ToPureTensor UniformTemporalSubsample functional functional_tensor transforms v2
AutoAugmentPolicy AutoAugment RandAugment TrivialAugmentWide AugMix ColorJitter ElasticTransform GaussianBlur RandomAdjustSharpness
RandomAffine RandomApply RandomAutocontrast RandomChannelPermutation RandomChoice RandomCrop RandomEqualize RandomErasing RandomGrayscale
RandomHorizontalFlip RandomInvert RandomIoUCrop RandomOrder RandomPerspective RandomPhotometricDistort RandomPosterize RandomResize
RandomResizedCrop RandomRotation RandomShortestSize RandomSolarize RandomVerticalFlip RandomZoomOut ScaleJitter GaussianNoise CutMix MixUp
""".split()
)
AUDIO = frozenset("Resample MelSpectrogram Spectrogram AmplitudeToDB MFCC FrequencyMasking TimeMasking".split())
# What is kept open, unless a `with` closes it.
OPENING = frozenset("zipfile.ZipFile tarfile.open gzip.open bz2.open lzma.open io.open gzip.GzipFile io.FileIO pathlib.Path.open".split())
# Methods whose answer is chance, or depends on the process, on some object of a trusted library.
DOUBTFUL_METHODS = frozenset(
    """
sample rvs samples now today utcnow random rand randn randint random_sample choice choices randrange shuffle permutation permuted integers
standard_normal getrandbits effect_spread get_state getstate map_async apply_async start open
""".split()
)

MODULES = frozenset(
    """
numpy.random torch.nn.functional torch.utils.data torchvision.transforms torchvision.transforms.v2 torchvision.transforms.functional
torchvision.transforms.v2.functional torchvision.ops torchvision.datasets torchvision.io scipy.ndimage skimage.transform
""".split()
)


def is_module(name: str) -> bool:
    """Whether a name is a module's: whoever has that has everything in it."""
    return "." not in name or name in MODULES


def trusted(name: str) -> bool:
    """Whether it is known what a library name draws (see `knowledge`), and that it draws nothing else."""
    package, _, rest = name.partition(".")
    first = rest.partition(".")[0]
    if package == "torch" and _torch(first):
        return True
    if name.startswith("torchvision.transforms."):
        parts = [part for part in name.split(".")[2:] if part not in ("v2", "transforms")]
        if parts and parts[0] not in TRANSFORMS:
            return False
    if name.startswith("torchaudio.transforms.") and name.split(".")[2] not in AUDIO:
        return False
    if name.startswith("torchvision.ops.") and ("drop" in name.lower() or "stochastic" in name.lower()):
        return False
    if package == "cv2" and first.isupper():
        return True  # a constant
    while name:
        if name in DOUBTFUL:
            return False
        if name in TRUSTED:
            return True
        name = name.rpartition(".")[0]
    return False


def _torch(first: str) -> bool:
    if not first:
        return True
    if first[0].isupper():
        return first in TORCH_NAMES
    return first not in TORCH_MODULES | DOUBTFUL_FUNCTIONS and not first.startswith("_")
