"""Stand-ins for the engine's client, where a test is about what is decided from its answers."""

from types import SimpleNamespace

from docker.errors import ImageNotFound


class Images:
    """What `DockerClient.images` knows: labels by reference."""

    def __init__(self, known):
        self.known = known

    def get(self, reference):
        if reference not in self.known:
            raise ImageNotFound(reference)
        return SimpleNamespace(id=f"sha256:{reference}", labels=self.known[reference])


def client_with(known):
    return SimpleNamespace(images=Images(known))
