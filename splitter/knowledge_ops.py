"""What ATen operations and containers of transforms do, as data, where torch's own tags don't say it.

    flip | layout          cumsum | reduction          torch.nn.modules.container.Sequential: runs its elements in turn

torch says of an operation whether it is pointwise, a reduction, random, a view, and whether it reads a value into Python. The rows say
the rest. An operation that neither knows is "unknown". Names are without the overload: `flip` stands for `aten.flip.default`.
"""

from __future__ import annotations

from splitter.graph import Trait


def _rows(text: str) -> dict[str, frozenset[Trait]]:
    rows: dict[str, frozenset[Trait]] = {}
    for line in text.strip().splitlines():
        names, _, traits = line.partition("|")
        for name in names.split():
            rows[name] = frozenset(traits.split())  # type: ignore[arg-type]
    return rows


# "layout" moves elements to other places and changes none.
TRAITS = _rows("""
flip rot90 roll repeat tile _unsafe_view _reshape_copy permute_copy view_copy expand_copy squeeze_copy | layout
unsqueeze_copy transpose_copy slice_copy select_copy contiguous pixel_shuffle pixel_unshuffle | layout
channel_shuffle | layout
clone                                                           | pointwise layout
_to_copy copy_ copy fill fill_ zero zero_                       | pointwise
cumsum cumprod cummax cummin logcumsumexp sort topk kthvalue median mode | reduction
_softmax _log_softmax softmax log_softmax std_mean var_mean native_layer_norm norm linalg_vector_norm | reduction
""")

# torch's tags, by name, and what they say here; tags that are not listed say nothing.
TAGS: dict[str, Trait] = {
    "pointwise": "pointwise",
    "reduction": "reduction",
    "nondeterministic_seeded": "random",
    "inplace_view": "layout",
    "data_dependent_output": "depends",
}

# What gives back the tensor that it takes: no operation of its own.
SAME = frozenset({"lift_fresh", "detach", "alias", "lift"})

# What makes memory that is not yet written: no constant, and no sample either.
EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})

# What gives the same bits however many threads share the work: its elements are computed one by one and rounded once, moved, or found.
# Others are when all of their tensors hold whole numbers. (exp, pow, fused multiply-adds: the last elements of a share take another way.)
EXACT = frozenset(
    """
sub mul div neg abs clamp clamp_min clamp_max where masked_fill eq ne lt le gt ge isnan isinf isfinite sign square sqrt
floor ceil round trunc logical_and logical_or logical_xor logical_not relu minimum maximum fmax fmin nan_to_num
_to_copy copy clone fill zero zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full scalar_tensor arange
empty empty_like empty_strided new_empty new_empty_strided empty_permuted
cat stack hstack index index_select gather scatter take masked_select nonzero constant_pad_nd _local_scalar_dense index_put unbind
tril triu flip roll rot90 repeat tile max min amax amin aminmax argmax argmin any all sort topk
lift_fresh detach alias lift equal is_same_size
""".split()
)

# How a tensor gets into Python without an ATen call.
ESCAPES = frozenset({"numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "item", "__int__", "__float__", "__bool__", "__index__"})

# Types with a list of transforms, by name: those which always run all of them in turn, and those which choose.
IN_TURN = frozenset({"Compose", "Sequential"})
CHOOSING = frozenset({"RandomApply", "RandomChoice", "RandomOrder", "OneOf", "SomeOf", "OneOrOther", "AutoAugment"})

# Operations that give the same bits on every device, also with floating-point numbers among what they take: they compare, choose or place.
EVERYWHERE = frozenset(
    """
eq ne lt le gt ge isnan isinf isfinite bucketize searchsorted where index index_select gather take embedding stack cat unbind
neg abs minimum maximum clamp clamp_min clamp_max floor ceil trunc sign logical_not logical_and logical_or logical_xor any all
constant_pad_nd masked_fill fill fill_ full_like zeros_like ones_like _local_scalar_dense scatter.value scatter_.value
max.default min.default amax amin aminmax nonzero
""".split()
)

# Of integers, these too, besides all that is pointwise. Sorting is not among them: of equal values any may come first.
INTEGER = frozenset("sum cumsum prod cumprod bincount _unique2 unique_dim".split())

# Of integers, a zero or a large number on the right is an error on one device and a value on another.
PARTIAL = frozenset("remainder fmod floor_divide div __lshift__ __rshift__ bitwise_left_shift bitwise_right_shift pow".split())

# Operations that IEEE 754 rounds correctly, so that on a CPU neither vectors nor threads change a bit.
IEEE = frozenset("add sub rsub mul div sqrt".split())
