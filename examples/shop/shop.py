"""A shop that notifies its customers with Clarion: bell, email and push. Start it with ./start."""

from __future__ import annotations

import secrets
import signal
import sqlite3
import sys
import uuid
from contextlib import closing
from os import environ
from pathlib import Path
from typing import Any

from clarion_client import ApiError, NotReached
from flask import Flask, Response, abort, redirect, render_template, request, session
from mail import Mailbox
from notifications import Notifications
from server import run_clarion
from werkzeug.security import check_password_hash, generate_password_hash

DATA = Path(environ.get("SHOP_DATA", "data")).resolve()
PORT = int(environ.get("SHOP_PORT", "5000"))
ORIGIN = f"http://127.0.0.1:{PORT}"
PRODUCTS = {"tea": ("Green tea", "4.50"), "cup": ("Tea cup", "12.00"), "pot": ("Tea pot", "38.00")}
CUSTOMERS = (
    "CREATE TABLE IF NOT EXISTS customers (id TEXT, name TEXT, email TEXT UNIQUE, hash TEXT)"
)
ORDERS = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, product TEXT)"

app = Flask(__name__, static_url_path="")  # /worker.js at the root works for all pages
app.config.update(SECRET_KEY=secrets.token_hex(), SESSION_COOKIE_SAMESITE="Lax")
mailbox = Mailbox()
notifications = Notifications()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    DATA.mkdir(parents=True, exist_ok=True)
    query(CUSTOMERS)
    query(ORDERS)
    with mailbox, run_clarion(DATA / "clarion") as server:
        notifications.set_up(server, origin=ORIGIN, mail_port=mailbox.port)
        print(f"The shop is at {ORIGIN}, and the mail that it sends at {ORIGIN}/mail", flush=True)
        app.run(host="127.0.0.1", port=PORT)


@app.get("/")
def show_shop() -> Any:
    if "id" not in session:
        return render_template("sign_in.html")
    orders = query("SELECT id, product FROM orders WHERE customer = ?", session["id"])
    given = {"clarion": notifications.url, "push_key": notifications.push_key}
    return render_template("shop.html", products=PRODUCTS, orders=orders, **given)


@app.post("/sign-in")
def sign_in() -> Any:
    name, email, password = (request.form[each] for each in ("name", "email", "password"))
    known = query("SELECT id, name, hash FROM customers WHERE email = ?", email)
    if known and not check_password_hash(known[0]["hash"], password):
        return render_template("sign_in.html", problem="The password is wrong."), 403
    if known:
        session["id"], session["name"] = known[0]["id"], known[0]["name"]
        return redirect("/")
    # Clarion knows users by the ids that your application has for them. The user is created there
    # first, so that every customer of the shop can be notified.
    session["id"], session["name"] = uuid.uuid4().hex, name
    notifications.add_user(session["id"], name=name, email=email)
    row = (session["id"], name, email, generate_password_hash(password))
    query("INSERT INTO customers VALUES (?, ?, ?, ?)", *row)
    return redirect("/")


@app.post("/sign-out")
def sign_out() -> Any:
    session.clear()
    return redirect("/")


@app.post("/orders")
def order() -> Any:
    product = request.form["product"]
    if product not in PRODUCTS:
        abort(400)
    insert = "INSERT INTO orders (customer, product) VALUES (?, ?) RETURNING id"
    (placed,) = query(insert, customer(), product)
    try:
        notifications.order_placed(customer(), placed["id"], PRODUCTS[product][0])
    except (ApiError, NotReached) as error:  # the order stands; the text is one line
        app.logger.warning("Order %s was not announced: %s", placed["id"], error)
    return redirect("/")


@app.get("/clarion-token")
def show_token() -> str:
    # For the bell: a token of the customer who is signed in, and of no other, valid for an hour.
    # The API key stays on the server.
    return notifications.sign_token(customer())


@app.get("/mail")
def show_mail() -> str:
    return render_template("mail.html", messages=mailbox.messages)


@app.after_request
def add_policy(response: Response) -> Response:
    # Clarion's origin, for the script of the bell and its requests, is all that the bell needs.
    clarion = notifications.url
    policy = f"default-src 'self'; script-src 'self' {clarion}; connect-src 'self' {clarion}"
    response.headers["Content-Security-Policy"] = policy
    return response


def customer() -> str:
    return session.get("id") or abort(401)


def query(sql: str, *values: str) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(DATA / "shop.db")) as database, database:
        database.row_factory = sqlite3.Row
        return database.execute(sql, values).fetchall()


if __name__ == "__main__":
    main()
