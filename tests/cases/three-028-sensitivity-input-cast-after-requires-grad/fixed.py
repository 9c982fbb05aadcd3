import torch


class DoseStudy:
    """Sensitivity of a two-compartment model to the dose given each hour."""

    def __init__(self, hours):
        self.dose = torch.full((hours,), 0.5, dtype=torch.float64, requires_grad=True)
        self.transfer = torch.tensor([[0.8, 0.05], [0.1, 0.9]], dtype=torch.float64)

    def simulate(self):
        state = torch.zeros(2, dtype=torch.float64)
        inlet = torch.tensor([1.0, 0.0], dtype=torch.float64)
        trace = []
        for amount in self.dose:
            state = self.transfer @ state + amount * inlet
            trace.append(state[1])
        return torch.stack(trace)

    def sensitivity(self):
        self.simulate()[-1].backward()
        return self.dose.grad.clone()


def main():
    study = DoseStudy(hours=12)
    effect = study.sensitivity()
    for hour, value in enumerate(effect.tolist()):
        print(f"{hour:2d} {'#' * int(value * 100)}")
    print("strongest hour", int(effect.argmax()))


main()
