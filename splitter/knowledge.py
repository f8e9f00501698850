"""What library calls do, as data. Adding a library is adding rows.

A row stands for a dotted name and everything below it, unless a longer name has a row of its own. `effects` are words:

    draws:torch draws:numpy draws:random   takes numbers from a global generator when it is called
    makes:torch ...                        the object that it makes draws when *it* is called (random transforms)
    reseeds                                sets or reads the state of a global generator
    reads                                  reads files
    lists                                  lists files in an order that the file system chooses
    unstable:<what>                        gives another answer in another process or at another time
    device                                 touches an accelerator
    prints                                 writes to standard output or error
    setting                                changes a process-wide switch that later computations obey
    opens                                  gives an open file or connection
    unknown                                may do anything
    pure                                   none of these

`gives` is the kind of the result (see kinds.py), or "" when it depends.
Draws of library classes: read in torchvision's and numpy's own sources; names as of torchvision 0.17-0.29, numpy 1.26-2.4.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    effects: frozenset[str]
    gives: str = ""


def _rows(text: str) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for line in text.strip().splitlines():
        left, _, right = line.partition("|")
        effects, _, gives = right.partition("->")
        for name in left.split():
            rows[name] = Row(frozenset(effects.split()), gives.strip())
    return rows


ROWS = _rows("""
builtins                                                        | pure
builtins.len builtins.int builtins.float builtins.str builtins.bool builtins.bytes builtins.abs builtins.round | pure -> plain
builtins.range builtins.ord builtins.chr builtins.repr builtins.format builtins.divmod builtins.pow builtins.complex | pure -> plain
builtins.isinstance builtins.issubclass builtins.callable builtins.hasattr builtins.any builtins.all | pure -> plain
builtins.list builtins.tuple builtins.dict builtins.sorted builtins.reversed builtins.zip builtins.enumerate | pure -> argument
builtins.sum builtins.min builtins.max builtins.map builtins.filter builtins.set builtins.frozenset builtins.iter builtins.next | pure -> argument
builtins.open                                                   | reads opens -> object
builtins.input                                                  | unstable:input() -> plain
builtins.hash                                                   | unstable:hash() -> plain
builtins.id                                                     | unstable:id() -> plain
builtins.print sys.stdout.write sys.stderr.write                | prints -> plain
builtins.eval builtins.exec builtins.compile builtins.__import__ builtins.globals builtins.locals builtins.vars | unknown
builtins.setattr builtins.delattr                               | unknown
builtins.getattr                                                | pure
builtins.super builtins.object builtins.property builtins.staticmethod builtins.classmethod builtins.type | pure
abc argparse.Namespace array base64 bisect collections contextlib copy csv ctypes dataclasses datetime decimal | pure
difflib enum fractions functools gc hashlib heapq html inspect io itertools json keyword logging math numbers | pure
operator pickle pprint queue re statistics string struct textwrap threading traceback types typing typing_extensions unicodedata | pure
urllib.parse warnings weakref zlib gzip bz2 lzma zipfile tarfile xml configparser tomllib shutil importlib ast | pure
contextlib.suppress contextlib.nullcontext                      | pure
math statistics operator                                        | pure -> plain
json.load json.loads json.dumps csv.reader                      | reads -> plain
pickle.load pickle.loads                                        | reads
json yaml toml tomllib                                          | reads
yaml.safe_load yaml.load yaml.full_load toml.load tomllib.load tomllib.loads | reads -> plain
re.compile                                                      | pure -> object
re.split re.sub re.findall                                      | pure -> plain
argparse.ArgumentParser                                         | pure -> parser
os.path                                                         | reads -> plain
os.path.exists os.path.isfile os.path.isdir os.path.getsize os.path.getmtime | reads -> plain
os.listdir os.scandir os.walk glob.glob glob.iglob              | lists -> plain
os.getpid os.getppid os.urandom os.getlogin os.times            | unstable:the_process -> plain
os.environ os.getenv os.environb                                | unstable:the_environment -> plain
os.getcwd os.cpu_count os.stat os.fsencode os.fsdecode os.sep os.linesep os.fspath os.name os.sched_getaffinity | reads -> plain
os.makedirs os.mkdir os.remove os.unlink os.rename os.replace os.system os.rmdir | unknown
os                                                              | unknown
pathlib pathlib.Path pathlib.PurePath                           | reads -> plain
time                                                            | unstable:the_clock -> plain
time.sleep                                                      | pure -> plain
time.strftime time.strptime time.struct_time                    | pure -> plain
datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow datetime.date.today | unstable:the_clock -> plain
uuid.uuid1 uuid.uuid4 secrets tempfile                          | unstable:a_random_name -> plain
uuid                                                            | pure -> plain
socket platform getpass                                         | unstable:the_host -> plain
platform.system sys.version_info sys.platform sys.maxsize sys.byteorder sys.float_info sys.version | pure -> plain
sys.argv                                                        | unstable:the_command_line -> plain
sys.path sys.modules sys.stdout sys.stderr sys.stdin sys.exit sys.getsizeof | pure
sys                                                             | unknown
subprocess multiprocessing concurrent asyncio signal            | unknown
multiprocessing.current_process                                 | unstable:the_process -> plain
sqlite3 lmdb h5py zarr                                          | reads opens -> object
random                                                          | draws:random -> plain
random.seed random.setstate random.getstate                     | reseeds -> plain
random.Random                                                   | pure -> rng
random.SystemRandom                                             | unstable:the_system's_entropy -> object

torch                                                           | pure
torch.rand torch.randn torch.randint torch.randperm torch.normal torch.rand_like torch.randn_like torch.randint_like | draws:torch -> tensor
torch.bernoulli torch.multinomial torch.poisson torch.binomial torch.dropout | draws:torch -> tensor
torch.nn.functional.dropout torch.nn.functional.dropout2d torch.nn.functional.rrelu torch.nn.functional.gumbel_softmax | draws:torch -> tensor
torch.nn.functional.dropout1d torch.nn.functional.dropout3d torch.nn.functional.alpha_dropout torch.nn.functional.feature_alpha_dropout | draws:torch -> tensor
torch.nn.functional.fractional_max_pool2d torch.nn.functional.fractional_max_pool3d torch.nn.functional.scaled_dot_product_attention | draws:torch -> tensor
torch.alpha_dropout torch.feature_dropout torch.feature_alpha_dropout torch.rrelu torch.svd_lowrank torch.pca_lowrank | draws:torch -> tensor
torch.nn.init                                                   | draws:torch
torch.distributions                                             | draws:torch
torch.manual_seed torch.seed torch.initial_seed torch.set_rng_state torch.get_rng_state torch.random | reseeds -> plain
torch.cuda torch.xpu torch.mps torch.accelerator torch.backends.cuda | device
torch.cuda.is_available torch.cuda.device_count                 | device -> plain
torch.backends                                                  | setting
torch.distributed                                               | unstable:the_process_group -> plain
mpi4py horovod torch_xla ignite.distributed deepspeed.comm accelerate.PartialState accelerate.state | unstable:the_process_group -> plain
jax.process_index jax.process_count jax.devices jax.local_devices | unstable:the_process_group -> plain
torch.Generator                                                 | pure -> rng
torch.device torch.Size torch.dtype torch.float32 torch.float64 torch.long torch.int64 torch.finfo torch.iinfo torch.is_tensor torch.get_default_dtype | pure -> plain
torch.set_default_dtype torch.set_default_tensor_type torch.set_flush_denormal torch.set_num_threads torch.set_float32_matmul_precision | setting -> plain
torch.set_grad_enabled torch.use_deterministic_algorithms torch.set_printoptions torch.autograd.set_detect_anomaly torch.set_default_device | setting -> plain
torch.set_num_interop_threads                                   | setting -> plain
torch.tensor torch.as_tensor torch.from_numpy torch.frombuffer torch.zeros torch.ones torch.full torch.empty torch.eye torch.arange | pure -> tensor
torch.linspace torch.logspace torch.stack torch.cat torch.concat torch.where torch.zeros_like torch.ones_like torch.full_like torch.flip | pure -> tensor
torch.FloatTensor torch.LongTensor torch.Tensor torch.IntTensor torch.ByteTensor torch.sort torch.topk torch.unique torch.chunk torch.split | pure -> tensor
torch.sin torch.cos torch.exp torch.log torch.sqrt torch.abs torch.clamp torch.mean torch.sum torch.std torch.max torch.min torch.matmul torch.einsum | pure -> tensor
torch.meshgrid torch.cumsum torch.argmax torch.argsort torch.nonzero torch.tril torch.triu torch.outer torch.pow torch.sigmoid torch.tanh torch.fft | pure -> tensor
torch.empty_like torch.quantize_per_tensor torch.sparse_coo_tensor torch.complex torch.bincount torch.quantile torch.square torch.round torch.sign | pure -> tensor
torch.nn.functional.one_hot torch.nn.functional.pad torch.nn.functional.interpolate torch.nn.functional.normalize | pure -> tensor
torch.load                                                      | reads
torch.nn                                                        | draws:torch -> model
torch.nn.functional torch.nn.utils.rnn                          | pure
torch.nn.utils.rnn.pad_sequence                                 | pure -> tensor
torch.nn.Parameter torch.nn.parameter.Parameter                 | pure -> parameter
torch.jit.load torch.hub torch.compile torch.export             | reads -> model
torch.optim                                                     | pure -> object
torch.utils.data.TensorDataset torch.utils.data.Subset torch.utils.data.ConcatDataset torch.utils.data.ChainDataset torch.utils.data.StackDataset | pure -> dataset
torch.utils.data.Dataset torch.utils.data.IterableDataset torch.utils.data.dataset | pure -> dataset
torch.utils.data.random_split                                   | draws:torch -> dataset
torch.utils.data.DataLoader torch.utils.data.dataloader.DataLoader | pure -> loader
torch.utils.data.RandomSampler torch.utils.data.SequentialSampler torch.utils.data.SubsetRandomSampler torch.utils.data.WeightedRandomSampler | pure -> sampler
torch.utils.data.BatchSampler torch.utils.data.distributed.DistributedSampler torch.utils.data.DistributedSampler torch.utils.data.Sampler torch.utils.data.sampler | pure -> sampler
torch.utils.data.get_worker_info torch.utils.data.default_collate torch.utils.data.default_convert torch.utils.data._utils | pure
torch.multiprocessing                                           | unknown
torch.utils.tensorboard torch.profiler                          | pure -> object

numpy                                                           | pure -> tensor
numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile        | reads -> tensor
numpy.memmap                                                    | reads opens -> tensor
numpy.random                                                    | draws:numpy -> tensor
numpy.random.seed numpy.random.set_state numpy.random.get_state | reseeds -> plain
numpy.random.default_rng numpy.random.RandomState numpy.random.Generator numpy.random.SeedSequence numpy.random.PCG64 numpy.random.MT19937 | pure -> rng
numpy.pi numpy.inf numpy.nan numpy.float32 numpy.float64 numpy.int64 numpy.int32 numpy.uint8 numpy.prod numpy.dtype | pure -> plain
numpy.save numpy.savez numpy.savetxt                            | unknown
numpy.seterr numpy.set_printoptions                             | setting -> plain

torchvision.transforms torchvision.transforms.v2 torchvision.transforms.transforms | pure -> object
torchvision.transforms.functional torchvision.transforms.v2.functional torchvision.transforms.InterpolationMode torchvision.transforms.functional_tensor | pure
torchvision.tv_tensors torchvision.ops torchvision.io torchvision.utils | reads
torchvision.datasets                                            | reads -> dataset
torchvision.datasets.FakeData                                   | pure -> dataset
torchvision                                                     | pure
torchvision.set_image_backend torchvision.set_video_backend     | setting
torchvision.models                                              | draws:torch -> model
torchvision.disable_beta_transforms_warning                     | pure
torchaudio.transforms torchaudio.functional torchaudio.compliance | pure -> object
torchaudio.load torchaudio.info torchaudio.datasets             | reads
PIL                                                             | reads -> object
PIL.ImageFile PIL.Image.MAX_IMAGE_PIXELS                        | pure
cv2                                                             | reads -> tensor
cv2.setNumThreads                                               | setting -> plain
imageio skimage scipy sklearn.preprocessing sklearn.datasets sklearn.feature_extraction matplotlib | reads
sklearn.datasets.make_classification sklearn.datasets.make_regression sklearn.datasets.make_blobs sklearn.datasets.make_moons | draws:numpy -> tensor
sklearn.datasets.load_digits sklearn.datasets.load_iris sklearn.datasets.load_wine sklearn.datasets.load_sample_images sklearn.datasets.load_sample_image | reads
sklearn.model_selection.train_test_split                        | draws:numpy -> argument
torchtext.data.utils torchtext.vocab torchtext.data.functional | reads -> object
sklearn.utils.shuffle                                           | draws:numpy -> argument
pandas                                                          | reads -> object
soundfile librosa wave                                          | reads
transformers.AutoTokenizer transformers.BertTokenizer transformers.GPT2Tokenizer tokenizers tiktoken sentencepiece nltk | reads -> object
datasets.load_dataset datasets.load_from_disk datasets.Dataset torchtext.datasets torch_geometric.datasets medmnist wilds | reads -> dataset
timm.data.create_dataset timm.data.ImageDataset                 | reads -> dataset
timm.data.create_transform                                      | makes:random makes:torch makes:numpy -> object
torchvision.models.detection torchvision.transforms.InterpolationMode | pure
transformers.AutoTokenizer transformers.AutoProcessor transformers.AutoImageProcessor transformers.AutoFeatureExtractor | reads -> object
transformers.PreTrainedTokenizerFast transformers.T5Tokenizer transformers.LlamaTokenizer transformers.RobertaTokenizer | reads -> object
transformers.default_data_collator transformers.DataCollatorWithPadding transformers.DefaultDataCollator | reads -> object
transformers.DataCollatorForSeq2Seq transformers.DataCollatorForTokenClassification | reads -> object
transformers.DataCollatorForLanguageModeling transformers.DataCollatorForPermutationLanguageModeling | makes:torch makes:numpy -> object
transformers.DataCollatorForWholeWordMask transformers.DataCollatorForSOP | makes:random makes:torch makes:numpy -> object
datasets.DatasetDict datasets.IterableDataset datasets.concatenate_datasets datasets.interleave_datasets | reads -> dataset
datasets.Features datasets.Value datasets.ClassLabel datasets.Sequence datasets.Image datasets.Audio | pure -> object
accelerate.DistributedType accelerate.utils.DistributedType     | pure -> plain
accelerate.logging.get_logger                                   | pure -> object
accelerate.Accelerator lightning.Trainer lightning.Fabric lightning.pytorch.Trainer lightning.fabric.Fabric | unknown -> driver
pytorch_lightning.Trainer lightning_fabric.Fabric pytorch_lightning.trainer.Trainer lightning.pytorch.trainer.Trainer | unknown -> driver
accelerate.skip_first_batches accelerate.data_loader.skip_first_batches | pure -> loader
lightning.LightningDataModule lightning.pytorch.LightningDataModule pytorch_lightning.LightningDataModule | pure -> object
accelerate.utils.set_seed transformers.set_seed lightning.seed_everything pytorch_lightning.seed_everything | reseeds -> plain
lightning.pytorch.seed_everything lightning.fabric.seed_everything lightning_fabric.seed_everything | reseeds -> plain
omegaconf hydra yacs                                            | reads -> namespace
tqdm tqdm.tqdm tqdm.auto.tqdm                                   | pure -> argument
einops                                                          | pure
""")

_RANDOM_TRANSFORMS = """
RandomCrop RandomResizedCrop RandomHorizontalFlip RandomVerticalFlip RandomRotation RandomAffine RandomPerspective RandomErasing
RandomGrayscale RandomInvert RandomPosterize RandomSolarize RandomAdjustSharpness RandomAutocontrast RandomEqualize RandomApply
RandomChoice RandomOrder RandomSizedCrop ColorJitter GaussianBlur ElasticTransform AutoAugment RandAugment TrivialAugmentWide AugMix
RandomPhotometricDistort RandomZoomOut RandomIoUCrop RandomShortestSize RandomChannelPermutation RandomResize ScaleJitter MixUp CutMix
GaussianNoise JPEG
"""

for _name in _RANDOM_TRANSFORMS.split():
    for _package in ("torchvision.transforms", "torchvision.transforms.v2", "torchvision.transforms.transforms"):
        ROWS[f"{_package}.{_name}"] = Row(frozenset({"makes:torch"} | ({"makes:random"} if _name == "RandomChoice" else set())), "object")
for _name in ("TimeMasking", "FrequencyMasking", "TimeStretch", "SpecAugment"):
    ROWS[f"torchaudio.transforms.{_name}"] = Row(frozenset({"makes:torch"}), "object")
for _package in ("albumentations", "imgaug", "audiomentations", "timm.data", "kornia.augmentation"):
    ROWS[_package] = Row(frozenset({"makes:random", "makes:numpy", "makes:torch"}), "object")

_UNKNOWN = Row(frozenset({"unknown"}))


def row(name: str) -> Row:
    """The row of a dotted name: its own, or that of the longest name above it; unknown otherwise."""
    while name:
        if name in ROWS:
            return ROWS[name]
        name = name.rpartition(".")[0]
    return _UNKNOWN


def known(name: str) -> bool:
    """Whether the table has a row for a dotted name."""
    return row(name) is not _UNKNOWN


LOADERS = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})
DATASET_BASES = frozenset(
    {
        "torch.utils.data.Dataset",
        "torch.utils.data.IterableDataset",
        "torch.utils.data.dataset.Dataset",
        "torch.utils.data.dataset.IterableDataset",
        "torch.utils.data.TensorDataset",
        "torch.utils.data.Subset",
        "torch.utils.data.ConcatDataset",
    }
)
# Methods of Hugging Face datasets that give another dataset.
DATASET_METHODS = frozenset(
    """
map filter select shuffle sort shard train_test_split rename_column rename_columns remove_columns cast cast_column flatten class_encode_column
with_format with_transform add_column select_columns skip take repeat align_labels_with_mapping to_iterable_dataset
""".split()
)
MODEL_BASES = frozenset(
    {
        "torch.nn.Module",
        "torch.nn.modules.module.Module",
        "pytorch_lightning.LightningModule",
        "lightning.LightningModule",
        "lightning.pytorch.LightningModule",
    }
)
# Wrappers that the trainer keeps: torch's own code over handles. The position is that of the wrapped dataset (or list of datasets).
WRAPPERS = frozenset(
    {
        f"{package}.{name}"
        for package in ("torch.utils.data", "torch.utils.data.dataset")
        for name in ("Subset", "random_split", "ConcatDataset", "ChainDataset")
    }
)
# Methods that change the object they are called on, for lists, dicts, sets, deques, arrays and tensors.
MUTATORS = frozenset(
    """
append extend insert remove pop popitem clear sort reverse update setdefault add discard appendleft popleft rotate fill resize put itemset
seed set_state setstate shuffle load_state_dict
""".split()
)
# Functions that change their first argument.
MUTATING_FUNCTIONS = frozenset(
    """
random.shuffle numpy.random.shuffle heapq.heapify heapq.heappush heapq.heappop heapq.heapreplace bisect.insort bisect.insort_left
bisect.insort_right builtins.setattr builtins.delattr numpy.put numpy.copyto numpy.fill_diagonal numpy.place operator.setitem
torch.nn.init.normal_ torch.nn.init.uniform_ torch.nn.init.constant_ torch.nn.init.zeros_ torch.nn.init.ones_
""".split()
)
# Calls that may be given a loader and only iterate over it.
ITERATES = ("builtins.", "itertools.", "tqdm", "rich.progress", "copy.copy")
# Methods of drivers (Accelerate, Lightning) that are given loaders: those that hand one back for each, and those that iterate over them.
# What they do to a loader was read in accelerate 1.15 and lightning 2.6; splitter_runtime.adapters stands in for what is constructed anew.
PREPARING = frozenset({"prepare", "prepare_data_loader", "setup_dataloaders", "skip_first_batches"})
DRIVING = PREPARING | {"fit", "validate", "test", "predict", "print", "gather_for_metrics"}
# Methods of tensors that draw; in-place methods end in one underscore.
DRAWING_METHODS = frozenset("random_ normal_ uniform_ bernoulli_ bernoulli exponential_ cauchy_ geometric_ log_normal_ multinomial".split())
# Methods of strings, lists, dicts, tensors and arrays that only look.
PLAIN_METHODS = frozenset(
    """
split rsplit strip lstrip rstrip lower upper replace join format startswith endswith encode decode splitlines title capitalize zfill count index
find rfind keys values items get copy tolist item isdigit isalpha as_posix partition rpartition read_text bit_length most_common numel size dim
""".split()
)
TENSOR_METHODS = frozenset(
    """
float double half long int bool view reshape permute transpose t flatten unsqueeze squeeze to mean sum std var min max abs clone detach numpy
astype repeat expand flip roll contiguous type new_tensor new_zeros new_ones sin cos exp log sqrt square clamp cumsum argmax argmin argsort
""".split()
)
