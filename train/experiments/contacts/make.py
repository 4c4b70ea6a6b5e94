"""Writes contacts.jsonl: sentences that mention a person, and the contact as JSON. All of it is made up."""

import json
import random

FIRST = "Ada Boris Carla Deniz Elena Farid Greta Hugo Ines Jonas Katya Leon Mira Nadia Omar Paula Quentin Rosa Samir Tilda Uwe Vera Wanda Yusuf Zoe".split()
LAST = "Almeida Brandt Costa Duarte Engel Fischer Garcia Haddad Ivanova Jensen Kowalski Lindqvist Moreau Novak Okafor Petrov Quist Rossi Sato Thorn Ueda Vogel Weber Yilmaz Zhang".split()
CITY = "Lisbon Hamburg Porto Ankara Sofia Cairo Vienna Lyon Madrid Oslo Kyiv Zurich Milan Rabat Ghent Leeds Turin Graz Izmir Boston".split()
ROLE = "plumber dentist architect baker lawyer photographer gardener teacher mechanic translator".split()
SENTENCES = [
    "I spoke to {first} {last} in {city} yesterday; the number is {phone}.",
    "Call {first} {last} ({phone}) if you are ever in {city} and need a {role}.",
    "{first} {last}, a {role} from {city}, can be reached at {phone}.",
    "My new {role} is {first} {last}. She moved to {city} last year, phone {phone}.",
    "If the heating fails again, ring {phone} and ask for {first} {last}, our {role} in {city}.",
    "For the wedding we took {first} {last}, the {role} from {city}: {phone}.",
    "{city} has many of them, but the best {role} there is {first} {last}, {phone}.",
    "Could you forward this to {first} {last} in {city}? The mobile is {phone}, he is a {role}.",
]


def record(draw):
    first, last, city, role = (draw.choice(names) for names in (FIRST, LAST, CITY, ROLE))
    phone = f"{draw.randint(200, 999)}-{draw.randint(1000, 9999)}"
    sentence = draw.choice(SENTENCES).format(first=first, last=last, city=city, role=role, phone=phone)
    answer = json.dumps({"name": f"{first} {last}", "city": city, "phone": phone})
    return {"messages": [{"role": "user", "content": sentence}, {"role": "assistant", "content": answer}]}


draw = random.Random(1)
with open("contacts.jsonl", "w") as file:
    for _ in range(480):
        file.write(json.dumps(record(draw)) + "\n")
