"""Loaders that are not torch's own, by dotted name: what each is called, and the way out for a script that wants its data elsewhere.

A row stands for a name and everything below it; the longest name wins.
"""

from __future__ import annotations

_SUBCLASS = "to split it, use torch.utils.data.DataLoader with the library's collate_fn"
_GRAPH = "graph sampling takes each batch from the whole graph, and only loaders of separate samples can be split"
_OWN = "it has threads and decoders of its own; to split it, use torch.utils.data.DataLoader over a dataset of the same files"
# name: (what it is, the way out)
OTHER_LOADERS = {
    "torch_geometric.loader": ("a PyG graph sampler", _GRAPH),
    "torch_geometric.loader.DataLoader": ("PyG's DataLoader", _SUBCLASS + " (torch_geometric.loader.dataloader.Collater)"),
    "torch_geometric.loader.dataloader.DataLoader": ("PyG's DataLoader", _SUBCLASS + " (torch_geometric.loader.dataloader.Collater)"),
    "torch_geometric.loader.DenseDataLoader": ("PyG's DenseDataLoader", _SUBCLASS),
    "torch_geometric.loader.DataListLoader": ("PyG's DataListLoader", _SUBCLASS),
    "torch_geometric.data.DataLoader": ("PyG's DataLoader", _SUBCLASS),
    "torch_geometric.data": ("a PyG graph sampler", _GRAPH),
    "dgl.dataloading": ("a DGL graph loader", _GRAPH),
    "dgl.dataloading.GraphDataLoader": ("DGL's GraphDataLoader", _SUBCLASS),
    "nvidia.dali.plugin": ("a DALI pipeline", "DALI decodes on the training host's GPU; to split it, decode in a dataset"),
    "webdataset.WebLoader": ("a WebDataset loader", "give the WebDataset itself to torch.utils.data.DataLoader, with batch_size=None"),
    "torchdata.stateful_dataloader": (
        "torchdata's StatefulDataLoader",
        "its state is that of its own worker processes; torch.utils.data.DataLoader can be split",
    ),
    "torchdata.dataloader2": ("torchdata's DataLoader2", "torch.utils.data.DataLoader takes the same datapipe"),
    "torchdata.nodes": ("a torchdata node loader", "torch.utils.data.DataLoader over a dataset of the same samples can be split"),
    "torchtext.data": ("a torchtext iterator", "torch.utils.data.DataLoader with a collate_fn that pads can be split"),
    "torchtext.legacy.data": ("a torchtext iterator", "torch.utils.data.DataLoader with a collate_fn that pads can be split"),
    "ffcv.loader": ("an FFCV loader", _OWN),
    "spdl": ("an SPDL pipeline", _OWN),
    "monai.data": ("MONAI's loader", _SUBCLASS + " (monai.data.list_data_collate) and worker_init_fn (monai.data.worker_init_fn)"),
    "fastai": ("a fastai loader", "fastai's Learner drives its loaders itself; a loop over torch.utils.data.DataLoader can be split"),
    "mmengine": ("an MMEngine loader", "the runner builds its loaders from a config; a loop over torch.utils.data.DataLoader can be split"),
    "streaming.StreamingDataLoader": ("a Mosaic streaming loader", "give the StreamingDataset to torch.utils.data.DataLoader"),
    "composer": ("a Composer loader", "the Trainer drives it; a loop over torch.utils.data.DataLoader can be split"),
    "pytorch_lightning": ("a Lightning loader", "the Trainer drives it; a loop over torch.utils.data.DataLoader can be split"),
    "lightning": ("a Lightning loader", "the Trainer drives it; a loop over torch.utils.data.DataLoader can be split"),
    "litdata.StreamingDataLoader": ("a LitData loader", "its workers prepare chunks of their own"),
    "accelerate.data_loader": ("an Accelerate loader", "construct torch.utils.data.DataLoader and iterate over it in the script"),
    "ray.train.torch": ("a Ray Train loader", "Ray places its own workers; torch.utils.data.DataLoader can be split"),
    "timm.data": ("a timm loader", "timm.data.create_loader builds it; construct torch.utils.data.DataLoader with the same transforms"),
    "detectron2.data": ("a detectron2 loader", "it is built from a config; torch.utils.data.DataLoader over a dataset can be split"),
    "allennlp.data": ("an AllenNLP loader", "it holds the vocabulary and the model's indexers; torch.utils.data.DataLoader can be split"),
    "rpc_dataloader": ("an RPC loader", "it has remote workers of its own; torch.utils.data.DataLoader can be split"),
    "torch_xla.distributed.parallel_loader": ("an XLA device loader", "construct torch.utils.data.DataLoader; the device loader wraps it"),
}
# How the classes end that are loaders (a module has datasets and samplers, too), where not every class is one.
_LOADING = ("Loader", "Loader2", "Iterator")
_ALL = frozenset({"torch_geometric.loader", "nvidia.dali.plugin", "ffcv.loader"})
_MAKERS = frozenset({"splits", "iters"})


def other_loader(name: str | None) -> str | None:
    """What a library's own loader is called; None for anything else."""
    if name is None:
        return None
    owner, _, last = name.rpartition(".")
    if last in _MAKERS:
        owner, _, last = owner.rpartition(".")
        name = f"{owner}.{last}"
    row = name
    while row and row not in OTHER_LOADERS:
        row = row.rpartition(".")[0]
    loads = row in _ALL or last.endswith(_LOADING)
    return OTHER_LOADERS[row][0] if row and last[:1].isupper() and loads else None


def way_out(what: str) -> str:
    """What a script can do instead, for a loader as `other_loader` calls it (or a phrase that ends in that)."""
    for called, way in OTHER_LOADERS.values():
        if called in what:
            return way
    if "a subclass of DataLoader" in what:
        return "to split it, override no more than __iter__, __len__ and __init__, and give torch's constructor everything at once"
    return "to split it, name torch.utils.data.DataLoader in the call"
