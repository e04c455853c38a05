"""Places: which file system a path or URI means, and how to connect to it.

::

    products.rel, /data/products.rel, file:///data/…      a local folder, or one that is mounted
    /Volumes/…, dbfs:/Volumes/…, dbfs:/…                  Databricks' folders /Volumes and /dbfs
    s3://bucket/…, s3a://bucket/…                         S3 and stores with its interface
    gs://bucket/…                                         Google Cloud Storage
    abfss://container@account.dfs.core.windows.net/…      Azure
    hdfs://namenode:8020/…, hdfs:///…                     HDFS, by Hadoop's own client

Credentials and endpoints come from the environment variables that the vendors' own tools use;
`docs/guides/places.md` lists them. A URI never has a password in it, because messages and logs show
it.

A service that does not answer is reported after `ANSWER_S` seconds: each one is asked once per
process, before the vendor's client, which would try for minutes, is used.
"""

import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from email.message import Message
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit
from urllib.request import Request, urlopen

from pyarrow import fs

from semistream.errors import OptionError, StorageError, did_you_mean

ANSWER_S = 3.0  # the longest that a service may take to answer the first request
_REQUEST_S = 10.0  # a request to S3 without a byte for this long has failed
_ATTEMPTS = 3  # of each request, unless AWS_MAX_ATTEMPTS says otherwise
_RETRY = timedelta(seconds=10)  # Google's client tries a request again for this long
_HDFS_PORT = 8020

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)", re.DOTALL)
_S3_TEXTS = ("region", "scheme", "endpoint_override", "tls_ca_file_path")
_S3_FLAGS = (
    *("anonymous", "allow_bucket_creation", "allow_bucket_deletion"),
    *("check_directory_existence_before_creation", "force_virtual_addressing"),
)
# How Databricks mounts its storage on every machine of a cluster.
_DBFS = "/dbfs"
_VOLUMES = "/Volumes"


class Place(NamedTuple):
    """A file system, and a path in it."""

    filesystem: fs.FileSystem | None  # None for a local folder
    path: str


def find(location: str) -> Place:
    """Return the file system of a path or URI, connected, or raise what to use instead.

    >>> find("products.rel"), find("file:///data/my%20products.rel").path
    (Place(filesystem=None, path='products.rel'), '/data/my products.rel')
    """
    uri = _URI.fullmatch(location)
    if uri is None:
        return Place(None, _databricks(location))
    scheme, rest = uri[1].lower(), uri[2]
    if scheme == "file":
        return Place(None, unquote(urlsplit(rest).path))
    if scheme == "dbfs":
        return Place(None, _databricks(_dbfs_path(rest)))
    connect = _SCHEMES.get(scheme)
    if connect is None:
        raise _unknown(location, scheme)
    if not rest.startswith("//"):
        raise OptionError(
            f"{location!r} is not a complete URI: write {scheme}:// with two slashes, and behind "
            "them the bucket or host"
        )
    parts = urlsplit(f"{scheme}:{rest}")
    if parts.password is not None:
        raise OptionError(
            f"the URI of {parts.hostname} has a password in it, which logs and messages would "
            "show. Take it out, and put it into the environment instead; docs/guides/places.md "
            "names the variables"
        )
    return Place(*connect(parts))


def _unknown(location: str, scheme: str) -> OptionError:
    instead = _INSTEAD.get(scheme)
    if instead:
        return OptionError(f"{location!r} cannot be used: {instead}")
    known = ["file", "dbfs", *_SCHEMES]
    return OptionError(
        f"{location!r} begins with {scheme}:, which is not known; use a local path, or one of "
        f"{', '.join(f'{name}:' for name in known)}.{did_you_mean(scheme, known)}"
    )


_AZURE_DOMAIN = "core.windows.net"
_AZURE_FORM = "abfss://container@account.dfs.core.windows.net/path"
_INSTEAD = {
    **dict.fromkeys(("wasb", "wasbs", "adl", "az", "azure"), f"write {_AZURE_FORM}"),
    **dict.fromkeys(
        ("http", "https"),
        "a relation cannot be written through a web address; write the address of the store "
        f"itself, such as s3://bucket/path, gs://bucket/path or {_AZURE_FORM}",
    ),
    "s3n": "write s3a:// or s3://",
    "webhdfs": "write hdfs://namenode:8020/path",
}


def _dbfs_path(rest: str) -> str:
    path = "/" + rest.lstrip("/")
    return path if path.startswith("/Volumes/") else _DBFS + path


def _databricks(path: str) -> str:
    """Return a local path, or raise if it is one of Databricks' on a machine that is not."""
    for mount in (_DBFS, _VOLUMES):
        if path.startswith(f"{mount}/") and not Path(mount).is_dir():
            raise StorageError(
                f"{path!r} is a path of Databricks, and this machine has no {mount}. Run this on a "
                "Databricks cluster, or use the address of the store behind it: s3://…, gs://… or "
                "abfss://…"
            )
    return path


def _environment(*names: str) -> str | None:
    """Return the first of these variables that is set and not empty."""
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _options(parts: SplitResult, texts: tuple[str, ...], flags: tuple[str, ...]) -> dict[str, Any]:
    """Return the options behind the question mark of a URI."""
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    for name, value in options.items():
        if name not in (*texts, *flags):
            raise OptionError(
                f"{parts.geturl()!r} has an unknown option {name!r}; the options are "
                f"{', '.join((*texts, *flags))}.{did_you_mean(name, (*texts, *flags))}"
            )
        if name in flags:
            options[name] = value.lower() == "true"
    return options


def _path_of(parts: SplitResult) -> str:
    """Return bucket and key as Arrow wants them."""
    if not parts.netloc:
        raise OptionError(f"{parts.geturl()!r} names no bucket; write {parts.scheme}://bucket/path")
    return f"{parts.netloc}{unquote(parts.path)}".rstrip("/")


# S3 ---------------------------------------------------------------------------------------------


def _s3(parts: SplitResult) -> tuple[fs.FileSystem, str]:
    path = _path_of(parts)
    options = _options(parts, _S3_TEXTS, _S3_FLAGS)
    defaults = {
        "endpoint_override": _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        "region": _environment("AWS_REGION", "AWS_DEFAULT_REGION"),
        "tls_ca_file_path": _environment("AWS_CA_BUNDLE"),
    }
    options = {name: value for name, value in defaults.items() if value} | options
    found = _bucket_region(parts.netloc, options)
    options.setdefault("region", found)
    attempts = int(_environment("AWS_MAX_ATTEMPTS") or _ATTEMPTS)
    return _connect("S3FileSystem", tuple(sorted(options.items())), attempts), path


def _bucket_region(bucket: str, options: Mapping[str, Any]) -> str:
    """Ask the store whether it is there, and for the region of a bucket."""
    region = options.get("region", "us-east-1")
    endpoint = options.get("endpoint_override")
    if endpoint is None:
        domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        url, source = f"https://s3.{region}.{domain}", "AWS_REGION"
    else:
        scheme = options.get("scheme", "https")
        url = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        source = "AWS_ENDPOINT_URL"
    return ask(f"{url.rstrip('/')}/{bucket}", source).get("x-amz-bucket-region", region)


# Google -----------------------------------------------------------------------------------------


def _google(parts: SplitResult) -> tuple[fs.FileSystem, str]:
    path = _path_of(parts)
    options = _options(parts, ("endpoint_override", "scheme", "project_id"), ("anonymous",))
    emulator = _environment("STORAGE_EMULATOR_HOST")
    if emulator:
        scheme, _, host = emulator.rpartition("://")
        emulated = {"endpoint_override": host.rstrip("/"), "scheme": scheme or "http"}
        options = {**emulated, "anonymous": True, **options}
    host = options.get("endpoint_override", "storage.googleapis.com")
    ask(f"{options.get('scheme', 'https')}://{host}/", "STORAGE_EMULATOR_HOST")
    return _connect("GcsFileSystem", tuple(sorted(options.items()))), path


# Azure ------------------------------------------------------------------------------------------


def _azure(parts: SplitResult) -> tuple[fs.FileSystem, str]:
    """Connect to ``container@account.dfs.core.windows.net``; the account may be in the environment.

    Without a key or a token Azure's client tries all its own ways: the variables of a service
    principal, a workload or managed identity, the login of ``az``.
    """
    container, _, host = parts.netloc.rpartition("@")
    if not container:
        container, host = host, ""
    known = _connection_string(_environment("AZURE_STORAGE_CONNECTION_STRING") or "")
    account = (
        host.partition(".")[0]
        or known.get("AccountName")
        or _environment("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
    )
    if not account or not container:
        raise OptionError(
            f"{parts.geturl()!r} names no container and account; write {_AZURE_FORM}, or set "
            "AZURE_STORAGE_ACCOUNT"
        )
    key = _environment("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
    token = _environment("AZURE_STORAGE_SAS_TOKEN")
    options: dict[str, Any] = {
        "account_name": account,
        "account_key": known.get("AccountKey") or key,
        "sas_token": known.get("SharedAccessSignature") or token,
    }
    if options["account_key"]:
        options["sas_token"] = None  # Arrow takes one of them
    endpoint = known.get("BlobEndpoint")
    domain = host.partition(".dfs.")[2] or known.get("EndpointSuffix") or _AZURE_DOMAIN
    address = urlsplit(endpoint or f"https://{account}.blob.{domain}/")
    for service in ("blob", "dfs"):
        if endpoint:
            options[f"{service}_storage_authority"] = address.netloc
            options[f"{service}_storage_scheme"] = address.scheme
        elif domain != _AZURE_DOMAIN:
            options[f"{service}_storage_authority"] = f".{service}.{domain}"
    ask(address.geturl(), "the URI or AZURE_STORAGE_CONNECTION_STRING")
    given = tuple(sorted((name, value) for name, value in options.items() if value))
    return _connect("AzureFileSystem", given), f"{container}{unquote(parts.path)}".rstrip("/")


def _connection_string(text: str) -> dict[str, str]:
    """Return the settings of Azure's connection string.

    >>> _connection_string("AccountName=shop;AccountKey=a2V5==;")
    {'AccountName': 'shop', 'AccountKey': 'a2V5=='}
    """
    pairs = (setting.partition("=") for setting in text.split(";") if setting)
    return {name.strip(): value for name, _, value in pairs}


# HDFS -------------------------------------------------------------------------------------------


def _hdfs(parts: SplitResult) -> tuple[fs.FileSystem, str]:
    """Connect to a name node, or, without a host, to the one of Hadoop's configuration."""
    host = parts.hostname or "default"
    port = 0 if host == "default" else parts.port or _HDFS_PORT
    if port:
        _knock(host, port)
    user = (("user", parts.username),) if parts.username else ()
    options = (("host", host), ("port", port), *user)
    return _connect("HadoopFileSystem", options), unquote(parts.path).rstrip("/") or "/"


# Connecting -------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _connect(kind: str, options: tuple[tuple[str, Any], ...], attempts: int = 0) -> fs.FileSystem:
    """Return one of Arrow's file systems; the same object for the same options."""
    limits: dict[str, Any] = {}
    if kind == "S3FileSystem":
        strategy = fs.AwsStandardS3RetryStrategy(max_attempts=attempts)
        limits = {"connect_timeout": ANSWER_S, "request_timeout": _REQUEST_S}
        limits["retry_strategy"] = strategy
    elif kind == "GcsFileSystem":
        limits = {"retry_time_limit": _RETRY}
    try:
        return getattr(fs, kind)(**dict(options), **limits)
    except ImportError as error:
        raise StorageError(
            f"the installed pyarrow has no {kind} ({error}); install a newer one, or one that was "
            "built with it"
        ) from error
    except OSError as error:
        first = f"{error}".partition("\n")[0]  # Hadoop's lists every folder it has looked in
        raise StorageError(f"{kind} could not be started: {first}. {_START[kind]}") from error


_START = {
    "S3FileSystem": "Check the AWS_… variables",
    "GcsFileSystem": "Check GOOGLE_APPLICATION_CREDENTIALS",
    "AzureFileSystem": "Check the AZURE_… variables",
    "HadoopFileSystem": "HDFS is read by Hadoop's own client: install Hadoop and Java here and on "
    "every executor, set HADOOP_HOME and JAVA_HOME, and set CLASSPATH to the output of "
    "`hadoop classpath --glob`",
}


@lru_cache(maxsize=64)
def ask(url: str, source: str) -> Mapping[str, str]:
    """Return the headers of any answer to a request, or raise that there is none in time.

    `source` is the variable that a wrong address may come from.
    """
    try:
        with urlopen(Request(url, method="HEAD"), timeout=ANSWER_S) as answer:
            return _lowered(answer.headers)
    except HTTPError as error:  # forbidden, or not there: an answer all the same
        with error:
            return _lowered(error.headers)
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLError):
            return {}  # it answers; whether it is trusted is for the vendor's client to say
        raise _unreachable(url, f"{reason}", source) from error


def _lowered(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _knock(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), ANSWER_S).close()
    except OSError as error:
        raise _unreachable(f"{host}:{port}", f"{error}", "the URI") from error


def _unreachable(address: str, reason: str, source: str) -> StorageError:
    return StorageError(
        f"{address} does not answer ({reason}). Check the network of this machine "
        f"({socket.gethostname()}), and the address: it may come from {source}"
    )


_SCHEMES: dict[str, Callable[[SplitResult], tuple[fs.FileSystem, str]]] = {
    "s3": _s3,
    "s3a": _s3,
    "gs": _google,
    "gcs": _google,
    "abfs": _azure,
    "abfss": _azure,
    "hdfs": _hdfs,
}

# Connections of a parent process must not be used by a child.
os.register_at_fork(after_in_child=_connect.cache_clear)
