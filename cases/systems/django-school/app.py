"""app.py COMMAND: school records on Django. APP selects the handler; see system.toml."""
import contextlib
import os
import random
import re
import subprocess
import sys
import threading
import time

import django
import requests
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.servers import basehttp
from django.db import connection, models, transaction
from django.http import HttpResponse
from django.template import Context, Engine
from django.urls import path

APP = os.environ["APP"]
PUPILS = 1000


def database():
    host, _, port = os.environ["STORE"].partition(":")
    if not port:
        return {}
    size = int(os.environ["POOL"])
    return {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "bars",
            "USER": "bars",
            "HOST": host,
            "PORT": port,
            # psycopg_pool.ConnectionPool: each request takes a connection and returns it at its
            # end.
            "OPTIONS": {"pool": {"min_size": size, "max_size": size}},
        }
    }


settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES=database(),
    # This middleware adds Content-Length. The development server closes connections without it.
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"] if os.environ["CONTENT_LENGTH"] == "true" else [],
    ROOT_URLCONF=__name__,
    USE_TZ=True,
    LOGGING={
        "version": 1,
        "formatters": {
            "server": {
                "()": "django.utils.log.ServerFormatter",
                "format": "[{server_time}] {message}",
                "style": "{",
            }
        },
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "server"}},
        # The development server logs each request at level INFO.
        "loggers": {"django.server": {"handlers": ["console"], "level": os.environ["LOG"], "propagate": False}},
    },
)
django.setup()


class School(models.Model):
    name = models.TextField()

    class Meta:
        app_label = "school"


class Pupil(models.Model):
    name = models.TextField()
    marks = models.IntegerField(default=0)
    school = models.ForeignKey(School, on_delete=models.CASCADE)

    class Meta:
        app_label = "school"


def create_tables():
    with connection.schema_editor() as editor:
        editor.create_model(School)
        editor.create_model(Pupil)
    schools = School.objects.bulk_create(School(name=f"school {i}") for i in range(40))
    Pupil.objects.bulk_create(Pupil(name=f"pupil {i}", school=schools[i % 40]) for i in range(PUPILS))
    connection.close()


def pause():
    time.sleep(0.02)


def report():
    """Returns a handler that renders a table with 100 marks."""
    template = Engine().from_string(
        "<table>{% for row in rows %}<tr><td>{{ row.name|upper }}<td>{{ row.mark|floatformat:1 }}{% endfor %}</table>"
    )
    rows = [{"name": f"pupil <{i}>", "mark": i * 7919 % 60 / 10} for i in range(100)]

    def handle():
        assert len(template.render(Context({"rows": rows}))) > 1000

    return handle


def validate(pattern):
    """Returns a handler that validates a code, which is invalid."""
    compiled = re.compile(pattern)
    text = "a" * 17 + "!"

    def handle():
        assert not compiled.fullmatch(text)

    return handle


def timetable(lock):
    """Returns a handler that refreshes the timetable in 10 ms."""

    def handle():
        with lock:
            time.sleep(0.01)

    return handle


def history():
    """Runs a query that takes 20 ms."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.02)")


def pupils(manager):
    """Returns a handler that lists ten pupils with their schools."""

    def handle():
        first = random.randint(1, PUPILS - 10)
        assert len([pupil.school.name for pupil in manager.filter(id__range=(first, first + 9))]) == 10

    return handle


def mark(count):
    """Returns a handler that marks one of COUNT pupils in a transaction that takes 10 ms."""

    def handle():
        with transaction.atomic():
            pupil = Pupil.objects.select_for_update().get(id=random.randint(1, count))
            pupil.marks += 1
            pupil.save()
            time.sleep(0.01)

    return handle


def canteen():
    """Starts the upstream, which responds after 20 ms, and returns a handler that calls it."""
    command = [sys.executable, "../slow-upstream/upstream.py", "20"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{process.stdout.readline().strip()}/menu"
    session = requests.Session()
    session.trust_env = False
    size = int(os.environ["UPSTREAM_POOL"])
    session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=size, pool_block=True))

    def handle():
        assert session.get(url).text == "price"

    return handle


HANDLERS = {
    "hello": lambda: lambda: None,
    "pause": lambda: pause,
    "report": report,
    "validate": lambda: validate("a+!!"),
    "validate-nested": lambda: validate("(a+)+!!"),
    "timetable": lambda: timetable(contextlib.nullcontext()),
    "timetable-locked": lambda: timetable(threading.Lock()),
    "history": lambda: history,
    "pupils": lambda: pupils(Pupil.objects.select_related("school")),
    "pupils-each": lambda: pupils(Pupil.objects),
    "mark": lambda: mark(PUPILS),
    "mark-one": lambda: mark(1),
    "canteen": canteen,
}


def view(request):
    handle()
    return HttpResponse("Hello World", content_type="text/plain")


urlpatterns = [path("", view)]
if ":" in os.environ["STORE"]:
    create_tables()
handle = HANDLERS[APP]()
basehttp.WSGIRequestHandler.disable_nagle_algorithm = os.environ["NODELAY"] == "true"
basehttp.WSGIServer.request_queue_size = int(os.environ["BACKLOG"])
execute_from_command_line(sys.argv)
