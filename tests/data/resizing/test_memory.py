"""A batch's memory is stacked without a copy, and never used again while a tensor of it is left."""

from __future__ import annotations

from threading import Thread

import numpy as np
import torch
from torch import Tensor

from dpbench.data.resizing.memory import allocate_image_array, stack_prepared_images, use_batch_memory

SHAPE = (3, 4, 5)


def prepare(levels: range, images: int = 8) -> list[Tensor]:
    with use_batch_memory(images):
        return [torch.from_numpy(allocate_image_array(SHAPE)).fill_(level) for level in levels]


def test_consecutive_images_are_stacked_in_place() -> None:
    prepared = prepare(range(5))
    stacked = stack_prepared_images(prepared)
    assert stacked.data_ptr() == prepared[0].data_ptr()
    assert torch.equal(stacked, torch.stack(prepared))


def test_images_in_another_order_are_copied() -> None:
    prepared = prepare(range(5))
    for other in (prepared[::-1], prepared[1:], [*prepared[:2], prepared[0].clone()], [prepared[0].int()]):
        assert torch.equal(stack_prepared_images(other), torch.stack(other))
    turned = [torch.from_numpy(np.zeros((3, 4, 5), np.float32)).transpose(1, 2)]
    assert stack_prepared_images(turned).shape == (1, 3, 5, 4)


def test_memory_is_used_again_once_no_tensor_of_it_is_left() -> None:
    first = stack_prepared_images(prepare(range(5)))
    place, kept = first.data_ptr(), first[2]
    del first
    second = stack_prepared_images(prepare(range(10, 15)))
    assert second.data_ptr() != place and float(kept[0, 0, 0]) == 2
    place = second.data_ptr()
    del second
    assert stack_prepared_images(prepare(range(20, 25))).data_ptr() == place


def test_more_images_than_a_batch_and_other_shapes_get_memory_of_their_own() -> None:
    with use_batch_memory(2):
        arrays = [allocate_image_array(SHAPE) for _ in range(3)]
        other = allocate_image_array((1, 2, 2))
    assert arrays[0].base is arrays[1].base is not None
    assert arrays[2].base is None and other.shape == (1, 2, 2)
    assert allocate_image_array(SHAPE).base is None  # outside of a batch


def test_each_thread_has_memory_of_its_own() -> None:
    found: list[Tensor] = []
    thread = Thread(target=lambda: found.append(stack_prepared_images(prepare(range(5)))))
    mine = stack_prepared_images(prepare(range(5)))
    thread.start()
    thread.join()
    assert found[0].data_ptr() != mine.data_ptr()
