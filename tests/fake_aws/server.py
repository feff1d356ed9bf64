"""The fake account behind a port of this computer, for tools that speak to AWS over HTTP.

    python -m tests.fake_aws.server us-east-1

prints the port once it listens, on the name ``localhost`` alone (moto recognizes its
own addresses by it), and serves until its standard input is closed: it ends with
whoever started it.
"""

import sys

from moto.server import ThreadedMotoServer

from tests.fake_aws.account import fakes_in_moto, publish_parameters


def main() -> None:
    [region] = sys.argv[1:]
    with fakes_in_moto():
        publish_parameters(region, bootstrapped=False)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        print(server.get_host_and_port()[1], flush=True)
        sys.stdin.read()
        server.stop()


if __name__ == "__main__":
    main()
