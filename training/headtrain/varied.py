"""Varied user turns: code, short questions, explanations and everyday requests, in many forms of words.

Owns its lists. prompts.py has few forms over many words, which a head learns by heart; here forms and subjects are both many,
so that a head trained on them is better on turns that nobody foresaw (training/results.md has the figures). Everything follows
from the seed.
"""

LANGUAGES = """\
Python, Python, Python, C, C, JavaScript, Java, C++, Go, Rust, TypeScript, Ruby, PHP, Kotlin, Bash, Python 3
""".replace("\n", " ").strip().split(", ")

TABLES = """\
employees, orders, customers, products, students, invoices, movies, payments, visitors, flights, tickets, messages
""".replace("\n", " ").strip().split(", ")

COLUMNS = """\
price, date, name, city, salary, age, country, amount, status, category, rating, quantity
""".replace("\n", " ").strip().split(", ")

FILES = """\
text files, images, log files, Python files, folders, empty files, backups, PDF files, CSV files, zip archives
""".replace("\n", " ").strip().split(", ")

COUNTRIES = """\
France, Italy, Japan, Spain, Germany, Canada, Mexico, India, China, Egypt, Kenya, Peru, Chile, Sweden, Norway, Finland,
Denmark, Poland, Greece, Turkey, Morocco, Argentina, Australia, New Zealand, Thailand, Vietnam, Indonesia, South Korea,
Switzerland, Austria, Belgium, the Netherlands, Ireland, Iceland, Hungary, Ukraine, Romania, Nigeria, Ethiopia, South
Africa, Cuba, Colombia, Pakistan, Nepal, Iran, Israel, Jordan, Malaysia
""".replace("\n", " ").strip().split(", ")

ELEMENTS = """\
hydrogen, oxygen, iron, silver, carbon, sodium, calcium, helium, copper, lead, mercury, nitrogen, chlorine, tin, zinc,
potassium
""".replace("\n", " ").strip().split(", ")

ANIMALS = """\
dog, cat, horse, elephant, bee, spider, snake, owl, penguin, dolphin, shark, frog, butterfly, lion, kangaroo, octopus,
camel, bat, goat, sheep, cow, fox, bear, wolf
""".replace("\n", " ").strip().split(", ")

NOUNS = """\
child, tooth, leaf, knife, goose, foot, woman, sheep, city, box, wolf, hero, crisis, cactus, person, fish
""".replace("\n", " ").strip().split(", ")

ADJECTIVES = """\
happy, cold, fast, brave, quiet, rich, early, deep, clean, polite, heavy, bright, narrow, old, rough, sweet, empty, honest,
lazy, strong, calm, famous, ancient, gentle
""".replace("\n", " ").strip().split(", ")

ABBREVIATIONS = """\
RAM, HTTP, USB, DNA, NASA, GPS, PDF, ATM, URL, CEO, FAQ, HTML, SQL, API, LED, AI, UN, EU, WHO, VIP, GDP, CSS, IP, BMI
""".replace("\n", " ").strip().split(", ")

BOOKS = """\
Hamlet, Don Quixote, War and Peace, 1984, The Odyssey, Pride and Prejudice, Moby Dick, The Hobbit, Frankenstein, Dracula,
Faust, The Little Prince, Alice in Wonderland, Treasure Island, Les Misérables, Crime and Punishment, Oliver Twist, The
Divine Comedy
""".replace("\n", " ").strip().split(", ")

PERSONS = """\
Albert Einstein, Isaac Newton, Marie Curie, Napoleon, Cleopatra, Julius Caesar, Mozart, Beethoven, Leonardo da Vinci,
Galileo Galilei, Charles Darwin, Nelson Mandela, Mahatma Gandhi, Martin Luther King, Abraham Lincoln, Ada Lovelace, Alan
Turing, Florence Nightingale, Vincent van Gogh, Frida Kahlo, Aristotle, Socrates, Christopher Columbus, Queen Victoria
""".replace("\n", " ").strip().split(", ")

FUNCTIONS = """\
checks whether a string is a palindrome
computes the factorial of a number
finds the largest element of an array
merges two sorted lists
counts how often each word occurs in a text
removes duplicates from a list
checks if a number is prime
generates the first n Fibonacci numbers
sorts a list of tuples by the second element
converts Celsius to Fahrenheit
flattens a nested list
validates an email address
finds all anagrams in a list of words
computes the greatest common divisor of two numbers
rotates an array by k places
reverses the words of a sentence
parses a date in the form YYYY-MM-DD
transposes a matrix
multiplies two matrices
checks whether brackets are balanced
finds the median of a list
computes the average of a list and handles the empty one
reads a file line by line and prints the longest line
writes a dictionary to a JSON file
downloads a web page and prints its title
converts a decimal number to binary
converts a Roman numeral to an integer
removes all vowels from a string
capitalizes the first letter of every word
finds the longest common prefix of several strings
finds two numbers in a list that add up to a target
implements a stack with push and pop
implements a queue with two stacks
inserts a node into a binary search tree
traverses a tree in order
performs a depth-first search on a graph
finds the shortest path in a grid
computes the sum of the digits of a number
checks whether a year is a leap year
swaps two variables
pads a string with spaces on the left
splits a list into chunks of a given size
computes the intersection of two lists
counts the vowels in a string
prints a multiplication table
draws a pyramid of stars
simulates rolling two dice
shuffles a deck of cards
generates a random password
computes compound interest
estimates pi with random numbers
implements bubble sort
implements quicksort
implements merge sort
implements insertion sort
finds the missing number in a sequence
computes the power of a number without using the built-in operator
compresses a string by run-length encoding
encrypts a text with the Caesar cipher
checks whether two strings are anagrams
computes the Hamming distance between two strings
returns the n-th row of Pascal's triangle
formats a number of bytes as KB, MB or GB
measures how long another function takes
retries a function that may fail
caches the results of a function
parses command line arguments
connects to a SQLite database and prints all rows
sends an HTTP request and handles a timeout
reads an environment variable with a default
walks through a folder and lists all files larger than 1 MB
copies a file
counts the lines in a file
replaces all tabs by spaces
logs messages with a time stamp
groups a list of people by age
filters the even numbers from a list
computes the dot product of two vectors
normalizes a list of numbers to the range 0 to 1
finds the most frequent element
checks whether a list is sorted
returns the last n lines of a file
turns a list of dictionaries into a CSV file
computes the distance between two points
checks whether a point lies inside a circle
deletes a node from a linked list
detects a cycle in a linked list
reverses a linked list
computes the depth of a binary tree
finds the k smallest numbers
interleaves two strings
counts set bits in an integer
allocates a two-dimensional array
reads integers from standard input until end of file
trims white space from both ends of a string
splits a string at commas
concatenates two strings safely
""".strip().splitlines()

FUNCTION_FORMS = """\
Write a {l} function that {f}.
Can you write {l} code that {f}?
I need a function in {l} which {f}. Please add comments.
Show me how to write a {l} program that {f}.
{l}: a function that {f}, with an example of how to call it.
How would you implement a function in {l} that {f}?
Write a short {l} function that {f}, then explain how it works.
Please give me {l} code that {f}. No explanation needed.
As a beginner in {l}, I want a function that {f}. How do I start?
Write {l} code that {f}, and three test cases.
What is the simplest way in {l} to write something that {f}?
""".strip().splitlines()

CONCEPTS = """\
recursion
a pointer
a hash table
a closure
a decorator in Python
a generator in Python
list comprehensions
a lambda function
inheritance
polymorphism
an interface
garbage collection
a memory leak
a stack overflow
a segmentation fault
a deadlock
a mutex
a thread and a process
asynchronous programming
a callback
a promise in JavaScript
the event loop
a REST API
an HTTP status code
a cookie and a session
SQL injection
a primary key
a foreign key
an index in a database
a transaction
normalization of databases
an inner join and a left join
a view in SQL
big O notation
binary search
dynamic programming
a binary tree
a linked list and an array
a stack and a queue
a heap
a graph
breadth-first search
version control
git rebase and git merge
a pull request
a unit test
continuous integration
Docker
a virtual environment in Python
the difference between == and is in Python
the difference between let, const and var
the difference between a list and a tuple
the difference between a class and an object
the difference between malloc and calloc
a header file in C
a macro in C
the const keyword
undefined behaviour
a compiler and an interpreter
static and dynamic typing
type hints
an exception
a regular expression
JSON
XML
an environment variable
a cron job
a pipe in the shell
file permissions in Linux
standard input and standard output
the grep command
the find command
the awk command
an SSH key
a load balancer
a cache
a message queue
encryption and hashing
public key cryptography
Unicode and UTF-8
floating point numbers
an integer overflow
endianness
a bit mask
the Model View Controller pattern
a singleton
dependency injection
a design pattern
refactoring
technical debt
""".strip().splitlines()

CONCEPT_FORMS = """\
Explain {c} with an example.
What is {c}? Show a small piece of code.
Can you explain {c} to someone who is new to programming?
When would I use {c}?
{c}: what is it and why does it matter?
Give a short explanation of {c} and a common mistake with it.
What should every programmer know about {c}?
""".strip().splitlines()

QUERY_FORMS = """\
Write an SQL query that selects all {t} sorted by {c}.
SQL: count the rows of {t} for every {c}.
How do I find duplicates of {c} in the table {t}?
Write a query for the average {c} in the table {t}, grouped by {d}.
How do I delete all {t} whose {c} is NULL?
Create a table {t} with the columns id, {c} and {d}.
How do I add a column {c} to the table {t}?
Write an SQL statement that updates the {c} of one row in {t}.
Select the five {t} with the highest {c}.
Join {t} with {u} and show {c} and {d}.
Which index would speed up a query on {t} that filters by {c}?
Write a query that shows {t} without any {u}.
""".strip().splitlines()

SHELL_FORMS = """\
Write a shell script that deletes all {x} older than 30 days.
How do I find all {x} in a directory with bash?
Bash: move all {x} to another folder.
How do I count {x} on the command line?
Write a bash loop over all {x} that prints their names and sizes.
How can I rename many {x} at once in Linux?
Give me a command that copies only {x} from one machine to another.
How do I search for a word in all {x}?
Write a script that makes a compressed backup of {x} every night.
How do I see which {x} take the most space?
""".strip().splitlines()

FAULTY = r"""
def average(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total / len(x)
for i in range(10)\n    print(i)
int main() { int a[5]; for (int i = 0; i <= 5; i++) a[i] = i; return 0; }
x = input("Age: ")\nif x > 18:\n    print("adult")
char *s; strcpy(s, "hello"); printf("%s", s);
if (x = 3) { printf("three"); }
def add(a, b):\n    print(a + b)\nresult = add(1, 2) * 2
let total = 0; for (let i = 0; i < items.length; i++); { total += items[i]; }
SELECT name, COUNT(*) FROM users;
while True:\n    line = f.readline()\n    print(line)
int *p = malloc(10); p[9] = 1; free(p); p[0] = 2;
names = ["a", "b"]\nfor n in names:\n    names.remove(n)
const user = null; console.log(user.name);
def fact(n):\n    return n * fact(n - 1)
char c = "a";
import json\ndata = json.loads(open("x.json"))
#!/bin/bash\nif [ $1 == ""]; then echo empty; fi
print("The sum is " + 5)
for (i = 0; i < 10; i--) { sum += i; }
SELECT * FROM orders WHERE date = NULL;
""".strip().splitlines()

FAULTY_FORMS = r"""
What is wrong with this code?\n\n{b}
Find the bug and fix it:\n\n{b}
This does not work. Why?\n\n{b}
Please review this code:\n\n{b}
Explain step by step what this code does and where it fails:\n\n{b}
""".strip().splitlines()

COUNTRY_FORMS = """\
What is the capital of {C}?
Which continent is {C} on?
What language do people speak in {C}?
What is the currency of {C}?
Name a famous city in {C}.
What is a typical dish from {C}?
Which countries border {C}?
How many people live in {C}, roughly?
Is {C} an island?
What are the colours of the flag of {C}?
Name a river in {C}.
""".strip().splitlines()

SHORT_FORMS = """\
What is the chemical symbol of {E}?
Is {E} a metal?
What is {E} used for?
How many legs does a {A} have?
What does a {A} eat?
What is a baby {A} called?
Where does a {A} live?
Is a {A} a mammal?
How long does a {A} live?
What sound does a {A} make?
What is the plural of {N}?
What is the opposite of {J}?
What is another word for {J}?
Is "{J}" a noun or an adjective?
How do you spell the number {M}?
How many {U} are there in {V}?
What does {Y} stand for?
Who invented {I}?
In which century was {I} invented?
Who wrote {B}?
What is {B} about, in one sentence?
When was {P} born?
Who was {P}?
What is {P} known for?
What is {M} plus {M2}?
What is {M} times {M2}?
Is {M} a prime number?
What is half of {M}?
What is the square root of {S}?
""".strip().splitlines()

INVENTIONS = """\
the telephone
the light bulb
the steam engine
the printing press
the airplane
the World Wide Web
penicillin
dynamite
the bicycle
the radio
the camera
paper
the compass
the microscope
the telescope
the battery
the zipper
the thermometer
""".strip().splitlines()

SUBJECTS = """\
climate change
the water cycle
photosynthesis
black holes
volcanoes
earthquakes
the human heart
sleep
memory
vitamins
vaccines
antibiotics
gravity
electricity
magnets
sound
light
rainbows
the Moon
tides
dinosaurs
fossils
evolution
the Roman Empire
ancient Egypt
the Middle Ages
the Renaissance
the French Revolution
the Second World War
the Cold War
the moon landing
democracy
taxes
inflation
the stock market
banks
insurance
supply and demand
artificial intelligence
computers
the internet
smartphones
batteries
solar panels
wind energy
nuclear power
recycling
plastic
deforestation
oceans
coral reefs
rainforests
deserts
bees
whales
dogs
cats
birds
trees
mushrooms
bread
cheese
chocolate
coffee
tea
salt
sugar
olive oil
soap
glass
paper
steel
concrete
bridges
trains
airplanes
ships
bicycles
cars
cities
maps
clocks
calendars
writing
languages
poetry
painting
photography
music
dance
theatre
film
football
chess
swimming
running
yoga
meditation
stress
friendship
education
reading
homework
teamwork
leadership
public speaking
negotiation
time management
""".strip().splitlines()

SUBJECT_FORMS = """\
How does {t} work?
Explain {t} in simple words.
Why is {t} important?
Tell me something surprising about {t}.
Write a short paragraph about {t}.
What are the advantages and disadvantages of {t}?
Give me a list of ten facts about {t}.
What is the history of {t}?
Write an introduction to an essay about {t}.
Summarize what is known about {t} in three sentences.
How would you explain {t} to a child?
What are common misconceptions about {t}?
Write five quiz questions about {t} with answers.
What should I read to learn more about {t}?
How has {t} changed in the last hundred years?
Discuss {t} from two points of view.
Write a dialogue between a teacher and a student about {t}.
""".strip().splitlines()

REQUESTS = """\
Help me plan a week of dinners for a family of four.
I have rice, eggs and spinach. What can I cook?
Give me a recipe for pancakes.
How do I bake bread without yeast?
What can I do with leftover chicken?
How do I boil eggs so that they peel easily?
Suggest a vegetarian dish for a party.
How do I make a good cup of coffee?
I feel tired all day. What could help?
How can I fall asleep faster?
What is a good workout for beginners without equipment?
How do I start running?
How much water should I drink every day?
How do I deal with stress before an exam?
I am nervous about a presentation. What should I do?
How do I make new friends in a new city?
My neighbour is too loud. How should I talk to him?
My friend forgot my birthday. What should I say?
How do I apologize to my boss?
Write an email asking for a day off.
Write an email to cancel an appointment with the dentist.
Write a letter of complaint about a broken washing machine.
Write a thank-you note to a teacher.
Write a short wedding speech for the best man.
Write an invitation to a garden party.
Write a message to a colleague who is leaving.
Write a product description for a wooden watch.
Write an advertisement for a small bakery.
Write a job posting for a gardener.
Write a slogan for a shop that repairs bicycles.
Write a review of a hotel that was clean but noisy.
Write a resume summary for a nurse.
How should I answer the question about my weaknesses in a job interview?
What questions should I ask at the end of a job interview?
How do I ask for a higher salary?
How do I write a good cover letter?
How do I save money on groceries?
How do I make a budget?
Should I rent or buy a house?
How do I choose a good laptop for school?
What is the best way to learn a new language?
How do I learn to play the guitar?
How can I read more books?
How do I remember names better?
How do I stop biting my nails?
How do I remove a coffee stain from a shirt?
How do I clean a burnt pan?
How do I unclog a sink?
How do I fix a flat bicycle tyre?
How do I paint a wall?
How do I plant tomatoes?
Why are the leaves of my house plant yellow?
How do I train a puppy?
How often should I feed a cat?
What should I pack for a trip to the beach?
Plan a three-day trip to Rome.
What can I do in London on a rainy day?
Suggest a road trip through a country with mountains.
What are good gifts for a grandmother?
Give me ideas for a date at home.
What games can children play outside?
Tell me a bedtime story about a rabbit.
Tell me a story about a robot that learns to paint.
Write a story that begins with: The door was never locked before.
Write a story about two brothers who find a map.
Write a scary story in five sentences.
Write a funny story about a cat in an office.
Write a fairy tale about a clever baker.
Write a poem about the sea.
Write a haiku about autumn.
Write a limerick about a man from Peru.
Write a rap about mathematics.
Write a song about friendship.
Tell me a joke about computers.
Tell me a riddle.
Give me three tongue twisters.
Describe a sunset in the mountains.
Describe an old library.
Describe your perfect day.
What is the meaning of life?
Is it better to be early or late?
Can money buy happiness?
What makes a good leader?
What would the world be like without electricity?
If you could travel in time, where would you go?
What is your favourite colour and why?
Who are you?
What can you do?
Hello!
Hi, how are you today?
Good morning. I would like some help.
Thanks a lot!
Can you help me with my homework?
I don't understand fractions. Can you explain them?
How do I calculate a percentage?
What is the difference between mean and median?
What is the Pythagorean theorem?
How do I solve a quadratic equation?
What is a prime number?
Explain probability with dice.
What is a derivative?
A shirt costs 40 dollars and is reduced by 25 percent. What does it cost now?
I drive 150 miles in 3 hours. What is my average speed?
If 3 apples cost 2 dollars, what do 12 apples cost?
There are 24 students, a third of them are boys. How many girls are there?
A room is 5 metres long and 4 metres wide. How large is it?
Tom is twice as old as Ann. Together they are 36. How old is each?
How many hours are there in three days?
Translate "Good evening, how are you?" into French.
Translate "I would like a cup of tea, please" into German.
Translate "Where is the train station?" into Spanish.
Translate "The book is on the table" into Italian.
How do you say "thank you" in Japanese?
What does "carpe diem" mean?
Correct the grammar: She don't like apples and neither I does.
Make this sentence shorter: In the event that it should rain, we will be forced to cancel the trip.
Rewrite in a formal tone: Hey, can you send me the file?
Rewrite in simple words: The remuneration is commensurate with experience.
Change to passive voice: The chef cooked the meal.
Put these words in alphabetical order: pear, apple, fig, cherry, banana.
Give me five synonyms for "important".
Use the word "resilient" in a sentence.
What is the difference between "affect" and "effect"?
When do I use "who" and when "whom"?
List the planets in order from the Sun.
List the months that have 31 days.
List ten animals that live in the ocean.
List the ingredients of a pizza.
List five famous scientists and what they did.
Name three rivers in Europe.
Give me ten names for a dog.
Give me a list of words that rhyme with "light".
Make a table of three fruits, their colour and their taste.
Make a packing list for camping.
Make a to-do list for moving to a new flat.
Make a timetable for studying two hours a day.
Classify these words as animals or plants: oak, trout, rose, sparrow, fern.
Is this review positive or negative? "The food was cold and the waiter was rude."
Extract the names from this sentence: Anna and Peter met Mr. Brown in Vienna.
What is the main idea of this text? "Bees visit flowers to collect nectar. While they do so, they carry pollen from one flower
to the next. Without them many fruits would not grow." Summarize: The meeting was moved from Monday to Thursday because the
manager is ill. Everyone is asked to send their reports by Wednesday noon. """.strip().splitlines()

UNITS = [
    ("seconds", "an hour"), ("hours", "a week"), ("days", "a leap year"), ("weeks", "a year"),
    ("months", "two years"), ("centimetres", "a metre"), ("grams", "a kilogram"), ("inches", "a foot"),
    ("feet", "a mile"), ("bits", "a byte"), ("millilitres", "a litre"), ("cents", "a dollar"),
    ("degrees", "a right angle"), ("players", "a football team"), ("strings", "a violin"),
    ("letters", "the alphabet"), ("keys", "a piano"), ("bones", "the human body"), ("teeth", "an adult's mouth"),
    ("continents", "the world"), ("planets", "the solar system"),
]
SQUARES = [n * n for n in range(2, 13)]


def _code(rng):
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(FUNCTION_FORMS).format(l=rng.choice(LANGUAGES), f=rng.choice(FUNCTIONS))
    if kind < 0.7:
        text = rng.choice(CONCEPT_FORMS).format(c=rng.choice(CONCEPTS))
        return text[:1].upper() + text[1:]
    if kind < 0.82:
        (table, other), (column, more) = rng.sample(TABLES, 2), rng.sample(COLUMNS, 2)
        return rng.choice(QUERY_FORMS).format(t=table, u=other, c=column, d=more)
    if kind < 0.92:
        return rng.choice(SHELL_FORMS).format(x=rng.choice(FILES))
    return rng.choice(FAULTY_FORMS).format(b=rng.choice(FAULTY)).replace("\\n", "\n")


def _short(rng):
    if rng.random() < 0.3:
        return rng.choice(COUNTRY_FORMS).format(C=rng.choice(COUNTRIES))
    unit, whole = rng.choice(UNITS)
    return rng.choice(SHORT_FORMS).format(
        E=rng.choice(ELEMENTS), A=rng.choice(ANIMALS), N=rng.choice(NOUNS), J=rng.choice(ADJECTIVES), M=rng.randint(3, 99),
        M2=rng.randint(2, 30), U=unit, V=whole, Y=rng.choice(ABBREVIATIONS), I=rng.choice(INVENTIONS), B=rng.choice(BOOKS),
        P=rng.choice(PERSONS), S=rng.choice(SQUARES))


def varied(rng):
    """A user turn: code and short questions a third each, explanations a quarter, requests of daily life the rest."""
    kind = rng.random()
    if kind < 0.33:
        return _code(rng)
    if kind < 0.66:
        return _short(rng)
    if kind < 0.92:
        return rng.choice(SUBJECT_FORMS).format(t=rng.choice(SUBJECTS))
    return rng.choice(REQUESTS)
