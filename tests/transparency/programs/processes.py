"""Workers, children and threads of every kind work and end as alone."""

import asyncio
import gc
import multiprocessing
import queue
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Rows(Dataset):
    def __init__(self):
        self.lin = nn.Linear(3, 3)

    def __len__(self):
        return 8

    def __getitem__(self, k):
        info = get_worker_info()
        row = torch.nn.functional.softmax(self.lin(torch.full((3,), float(k))), dim=0)
        row.sum().backward()
        modes = len(_get_current_function_mode_stack()) if info is not None else 0
        return row.detach() + modes, torch.tensor(-1 if info is None else info.id), torch.rand(1)


class Failing(Rows):
    def __getitem__(self, k):
        return torch.nn.functional.linear(torch.ones(1, 2), torch.ones(1, 3))


def train(seed):
    torch.manual_seed(seed)
    lin = nn.Linear(4, 1)
    loss = lin(torch.randn(5, 4)).square().mean()
    loss.backward()
    return loss.item(), lin.weight.grad.sum().item()


def tell(name, results):
    results.put((name, train(3), len(_get_current_function_mode_stack()) == 0, len(sys.argv)))


def ranked(rank, results):
    results.put((rank, train(rank)))


def failing(rank):
    torch.nn.functional.linear(torch.ones(1, 2), torch.ones(1, 3))


def exiting(rank):
    sys.exit(rank + 3)


def main():
    torch.manual_seed(0)
    for context in ("fork", "spawn"):
        for workers in (0, 2):
            loader = DataLoader(Rows(), batch_size=2, num_workers=workers, shuffle=True,
                                multiprocessing_context=context if workers else None,
                                generator=torch.Generator().manual_seed(1))
            for batch, worker, random in loader:
                print(context, workers, batch.sum().item().hex(), worker.tolist(),
                      random.sum().item().hex())
        try:
            next(iter(DataLoader(Failing(), num_workers=1, multiprocessing_context=context)))
        except RuntimeError as error:
            print(error)
        gc.collect()  # The loader's iterator is in a cycle, and must not end in a forked child.
        results = multiprocessing.get_context(context).SimpleQueue()
        process = multiprocessing.get_context(context).Process(target=tell, args=(context, results))
        process.start()
        print(results.get())
        process.join()
        print(process.exitcode)
        process = multiprocessing.get_context(context).Process(target=failing, args=(0,))
        process.start()
        process.join()
        print(process.exitcode)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        print(list(pool.map(train, [1, 2])))
    for method in ("spawn", "fork"):
        results = mp.get_context(method).SimpleQueue()
        mp.start_processes(ranked, args=(results,), nprocs=2, start_method=method)
        print(sorted(results.get() for _ in range(2)))
        for function in (failing, exiting):
            try:
                mp.start_processes(function, nprocs=1, start_method=method)
            except Exception as error:
                print(type(error).__name__, getattr(error, "exit_code", None), error)
    context = mp.spawn(failing, nprocs=1, join=False)
    print(type(context).__name__, len(context.processes))
    try:
        while not context.join():
            pass
    except mp.ProcessRaisedException as error:
        print(error.error_index)

    done = queue.Queue()
    threads = [threading.Thread(target=lambda k=k: done.put((k, train(k)))) for k in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    print(sorted(done.get() for _ in threads))
    with ThreadPoolExecutor(2) as pool:
        print(len(list(pool.map(train, [1] * 4))))
    timer = threading.Timer(0.01, print, args=("timer",))
    timer.start()
    timer.join()
    print(threading.current_thread().name)

    async def both():
        return await asyncio.gather(asyncio.to_thread(train, 1), asyncio.to_thread(print, "task"))

    print(len(asyncio.run(both())))


if __name__ == "__main__":
    main()
