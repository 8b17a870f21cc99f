import ml_dtypes
import numpy as np
import pytest
import torch

from bisect_onnx.runtimes.torch_arrays import dtype_name, holds_array, to_numpy, to_tensor, view_as_numpy

DTYPES = [
    (torch.float32, np.float32),
    (torch.float16, np.float16),
    (torch.bfloat16, ml_dtypes.bfloat16),
    (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
    (torch.float8_e5m2, ml_dtypes.float8_e5m2),
    (torch.int64, np.int64),
    (torch.uint8, np.uint8),
    (torch.bool, np.bool_),
    (torch.complex64, np.complex64),
]


@pytest.mark.parametrize(("torch_dtype", "numpy_dtype"), DTYPES)
def test_values_survive_the_way_there_and_back(torch_dtype, numpy_dtype):
    tensor = torch.tensor([[0.0, 1.0, 2.0], [0.5, 1.5, 4.0]]).to(torch_dtype)

    array = to_numpy(tensor)

    assert array.dtype == numpy_dtype
    assert dtype_name(torch_dtype) == array.dtype.name
    np.testing.assert_array_equal(array.astype(np.complex64).real, tensor.to(torch.complex64).real.numpy())
    back = to_tensor(array)
    assert back.dtype is torch_dtype
    np.testing.assert_array_equal(to_numpy(back), array)


def test_a_view_shares_memory_and_a_copy_does_not():
    tensor = torch.ones(4, dtype=torch.bfloat16)
    view, copy = view_as_numpy(tensor), to_numpy(tensor)

    tensor.fill_(2)

    assert (view == 2).all()
    assert (copy == 1).all()


def test_a_tensor_made_of_an_array_leaves_it_alone():
    array = np.ones((2, 3), np.float32)[:, ::-1]
    array.flags.writeable = False

    to_tensor(array).fill_(5)

    assert (array == 1).all()


def test_scalars_conjugates_and_foreign_byte_order_are_understood():
    assert to_numpy(torch.tensor(2.0, dtype=torch.bfloat16)).shape == ()
    np.testing.assert_array_equal(to_numpy(torch.tensor([1 + 2j]).conj()), [1 - 2j])
    np.testing.assert_array_equal(to_numpy(to_tensor(np.array([1, 2], ">i4"))), [1, 2])


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_half_precision_complex_numbers_widen_because_numpy_has_none():
    assert to_numpy(torch.ones(2, dtype=torch.complex32)).dtype == np.complex64


def test_tensors_without_plain_elements_are_told_apart():
    assert holds_array(torch.ones(2))
    assert not holds_array(torch.eye(2).to_sparse())
    assert not holds_array(torch.ones(2, device="meta"))
