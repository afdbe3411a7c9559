"""Word lists and templates of prompts.py: data only."""


def _list(text):
    return [word.strip() for word in text.replace("\n", " ").split(",") if word.strip()]


TOPICS = _list("""
photosynthesis, the French Revolution, solar panels, the Roman Empire, plate tectonics, electric cars, the printing press,
climate change, the steam engine, volcanoes, the Silk Road, black holes, antibiotics, the human brain, coral reefs, jazz,
the Renaissance, wind power, the immune system, chess, the Olympic Games, coffee, chocolate, the Moon, Mars, gravity,
electricity, magnetism, evolution, DNA, cells, bacteria, recycling, the water cycle, deserts, rainforests, glaciers,
earthquakes, hurricanes, democracy, money, banking, trade, taxes, insurance, the stock market, machine learning, robots,
the Internet, programming, databases, operating systems, computer networks, cryptography, open source software, the telephone,
radio, television, photography, cinema, painting, sculpture, architecture, bridges, railways, ships, aeroplanes, rockets,
satellites, telescopes, microscopes, clocks, maps, calendars, numbers, algebra, geometry, statistics, probability, logic,
philosophy, ethics, psychology, memory, sleep, dreams, nutrition, vitamins, exercise, yoga, meditation, medicine, surgery,
vaccination, the heart, the lungs, the skeleton, muscles, teeth, eyes, hearing, language, writing, alphabets, libraries,
newspapers, novels, poetry, theatre, opera, dance, folk music, the piano, the violin, the guitar, drums, fashion, cotton, wool,
silk, leather, glass, paper, steel, aluminium, gold, silver, copper, diamonds, salt, sugar, wheat, rice, maize, potatoes,
tomatoes, olive oil, wine, beer, tea, cheese, milk, honey, fishing, farming, gardening, forests, rivers, lakes, oceans, islands,
mountains, caves, weather, rainbows, tides, seasons, stars, galaxies, comets, dinosaurs, fossils, the Ice Age, the Stone Age,
ancient Egypt, ancient Greece, the Middle Ages, castles, knights, the Vikings, the Industrial Revolution, the Cold War,
the United Nations, the European Union, human rights, education, schools, universities, museums, zoos, tourism, hotels,
restaurants, supermarkets, advertising, marketing, leadership, teamwork, time management, job interviews, public speaking,
friendship, family, parenting, marriage, retirement, volunteering, charity, football, tennis, swimming, cycling, running,
hiking, skiing, sailing, video games, board games, puzzles, magic tricks, origami, knitting, pottery, carpentry, cooking,
baking, batteries, lasers, nuclear power, hydrogen, plastics, air pollution, noise, biodiversity, endangered species, national
parks, the honeybee colony, migration of birds, whales, sharks, elephants, insects, spiders, mushrooms, algae, genetics,
cloning, stem cells, virtual reality, social media, smartphones, search engines, online privacy, passwords, e-mail, remote work,
start-up companies, city planning, public transport, traffic, housing, water supply, sewage, waste, fire fighting, the police,
law, courts, voting""")

PLACES = _list("""
Paris, London, Rome, Berlin, Madrid, Lisbon, Vienna, Prague, Athens, Istanbul, Cairo, Nairobi, Cape Town, Lagos, Marrakesh,
Mumbai, Delhi, Beijing, Shanghai, Tokyo, Kyoto, Seoul, Bangkok, Singapore, Sydney, Melbourne, Auckland, New York, Chicago, San
Francisco, Boston, Toronto, Vancouver, Mexico City, Havana, Lima, Bogota, Buenos Aires, Santiago, Rio de Janeiro, Oslo,
Stockholm, Helsinki, Copenhagen, Reykjavik, Dublin, Edinburgh, Amsterdam, Brussels, Zurich, Warsaw, Budapest, Moscow, Iceland,
Norway, Switzerland, Japan, Brazil, Peru, Kenya, Egypt, India, China, Vietnam, Canada, Alaska, Hawaii, Greenland, Scotland,
Ireland, Portugal, Italy""")

ANIMALS = _list("""
dolphin, elephant, lion, tiger, wolf, bear, fox, rabbit, hedgehog, squirrel, beaver, otter, penguin, eagle, owl, parrot, crow,
swan, stork, swallow, frog, turtle, crocodile, snake, lizard, shark, salmon, octopus, jellyfish, crab, bee, ant, butterfly,
spider, horse, cow, sheep, goat, pig, dog, cat, mouse, bat, giraffe, zebra, camel, kangaroo, koala, monkey, gorilla, whale,
seal, polar bear""")

FOODS = _list("""
pasta, pizza, soup, bread, pancakes, salad, curry, risotto, lasagna, omelette, chili, tacos, sushi, dumplings, stew, roast
chicken, apple pie, chocolate cake, cookies, ice cream, a smoothie, fried rice, lentils, hummus, a sandwich, muffins, porridge,
a burger, vegetable soup, mashed potatoes, banana bread, cheesecake, a fruit salad, noodles, grilled fish, baked beans""")

JOBS = _list("""
teacher, nurse, doctor, engineer, farmer, baker, carpenter, plumber, electrician, pilot, sailor, driver, cook, waiter,
librarian, journalist, lawyer, judge, police officer, firefighter, scientist, programmer, designer, architect, musician, actor,
painter, writer, photographer, gardener, mechanic, tailor, hairdresser, accountant, shopkeeper, postman, soldier, astronaut,
detective, coach""")

OBJECTS = _list("""
a bicycle, a laptop, a tent, an umbrella, a pair of running shoes, a coffee machine, a wristwatch, a desk lamp, a wooden chair,
a water bottle, a camera, a pair of headphones, a kitchen knife, a notebook, a fountain pen, a suitcase, a winter coat, a garden
hose, a guitar, a telescope, a toaster, a vacuum cleaner, a sleeping bag, a pair of sunglasses, a board game, a smart speaker, a
yoga mat""")

ACTIVITIES = _list("""
learn to swim, learn a new language, save money, lose weight, write a novel, plan a wedding, move to another city, buy a house,
grow vegetables, train a puppy, paint a room, repair a bicycle, make new friends, read more books, drink more water, get up
early, organize my desk, study for an exam, build a bird house, start a blog, learn the guitar, cook for twelve guests, travel
by train, prepare for a marathon, clean the kitchen, take better photographs, give a presentation, write a letter of complaint,
choose a university, find a hobby, spend less time on my phone, care for an elderly parent, organize a birthday party, sell my
car""")

PHENOMENA = _list("""
rain, snow, fog, wind, a rainbow, an eclipse of the sun, an eclipse of the moon, the tides, an earthquake, a tsunami, a tornado,
a volcano, rust, fire, echoes, hiccups, yawning, fever, hunger, thirst, sunburn, static electricity, the northern lights, a
desert, a river delta, a waterfall, coal, oil, sand, a pearl, dew, frost, hail, day and night, the seasons, a cold, an allergy,
ageing""")

NAMES = _list("""
Maria, John, Lena, Peter, Sarah, Ahmed, Julia, David, Nina, Paul, Emma, Lucas, Olivia, Noah, Sofia, Ben, Clara, Daniel, Eva,
Felix, Grace, Henry, Iris, Jack, Kate, Leo, Mia, Oscar, Rosa, Sam, Vera, Will, Zoe, Carlos, Yuki, Priya""")

CHAT = [
    "Give me three tips on how to {activity}.", "Give me five ideas to {activity}.", "How can I {activity}?",
    "I want to {activity}. Where do I begin?", "What should I think about before I {activity}?",
    "Make a weekly plan for somebody who wants to {activity}.", "Write a checklist for how to {activity}.",
    "Write a short poem about {topic}.", "Write a poem about {animal}s in {place}.", "Write a haiku about {topic}.",
    "Write a short story about a {animal} and a {job}.", "Tell me a story about a {animal} who travels to {place}.",
    "Write a story about {name}, a {job} in {place}.", "Write the beginning of a mystery novel set in {place}.",
    "Explain to a child what {topic} is.", "Explain {topic} in simple words.", "Explain {topic} to a beginner.",
    "Write a polite email to a {job} to ask for an appointment.",
    "Write an email to my boss to ask for a day off to {activity}.",
    "Write a letter to a friend about a journey to {place}.", "Write a thank-you note to a {job}.",
    "Write a product description for {object}.", "Write an advertisement for {object}.", "Write a review of {object}.",
    "What are the advantages and disadvantages of {topic}?", "Compare {topic} with {topic2}.",
    "What do you think about {topic}?",
    "Describe a day in the life of a {job}.", "Describe a market in {place}.",
    "Describe a {animal} to somebody who has never seen one.",
    "Pretend that you are a {job} and tell me about your work.", "Pretend that you are a {animal} and describe your day.",
    "How do I cook {food}?", "Give me a recipe for {food}.", "What goes well with {food}?",
    "I have guests tonight. How do I make {food}?",
    "What can I do in {place} in three days?", "Plan a weekend in {place} for a family.", "List ten things to see in {place}.",
    "Write a dialogue between a {job} and a customer.", "Write a conversation between {name} and {name2} about {topic}.",
    "Write a short speech about {topic}.", "Write a motivational message for a {job}.",
    "Write a toast for the wedding of {name} and {name2}.",
    "Suggest five titles for a book about {topic}.", "Suggest names for a {animal}.",
    "List ten words that have to do with {topic}.",
    "Write an essay about {topic}.", "Write an introduction to an article about {topic}.",
    "Write three questions for a quiz about {topic}.",
    "What are some common mistakes of people who want to {activity}?", "My friend wants to {activity}. What advice can I give?",
    "I feel tired and cannot concentrate. What can I do?", "I had an argument with {name}. How do I apologize?",
    "Write a Python function that reverses a string.",
    "Write a Python function that checks whether a number is prime, and explain it.",
    "Write a Python class for {object} in a shop.", "Write a Python program that sorts a list of {animal}s by their age.",
    "Write a C function that adds the numbers of an array.", "Write a C program that prints the first ten squares.",
    "Write a JavaScript function that removes duplicates from an array.",
    "Write a SQL query that counts the orders of each {job}.",
    "Write an HTML page with a heading and a list of facts about {topic}.",
    "Write a shell script that copies all text files to another folder.",
    "Write a Python function that computes the average of a list.",
    "Write a Python function that finds the longest word in a sentence.",
    "Write a Java method that returns the factorial of n.", "Explain what this code does: for i in range(10): print(i * i)",
    "Rewrite this sentence in a formal style: I can't come because I have to {activity}.",
    "Correct the grammar: He don't knows much about {topic}.",
    "Find a better word for \"nice\" in: It was a nice trip to {place}.",
    "Give me a fun fact about {topic}.", "Tell me a joke about a {job}.", "What is your name?",
    "Who are you and what can you do?", "Hello!",
    "What jobs are there for somebody who likes {topic}?", "What does a {job} need to know?", "How do I become a {job}?",
    "Write a job advertisement for a {job} in {place}.", "Write a cover letter for a {job}.",
    "Write a short biography of a {job} named {name}.",
]

QUESTIONS = [
    "What is {topic}?", "What is {topic} and why does it matter?", "How does {topic} work?",
    "Who invented or discovered {topic}?",
    "When did {topic} begin?", "Why is {topic} important?", "What are the main parts of {topic}?",
    "What is the history of {topic}?",
    "How do {animal}s live?", "What do {animal}s eat?", "How long do {animal}s live?", "Where do {animal}s live?",
    "How do {animal}s protect themselves?", "What is the difference between a {animal} and a {animal2}?",
    "Are {animal}s dangerous?",
    "What causes {phenomenon}?", "How does {phenomenon} form?", "Why does {phenomenon} occur?",
    "Can {phenomenon} be predicted?",
    "Where is {place}?", "What is {place} known for?", "What language do people speak in {place}?",
    "What is the climate of {place}?",
    "What is the history of {place}?", "What do people eat in {place}?", "How many people live in {place}?",
    "What does a {job} do?", "How much does a {job} earn?", "What is {food} made of?", "Where does {food} come from?",
    "Is {food} healthy?",
    "What is the difference between {topic} and {topic2}?", "Name three facts about {topic}.",
    "Which countries are known for {topic}?",
    "How has {topic} changed over time?", "What problems are connected with {topic}?",
    "Who was the first person to study {topic}?",
    "Why do people like {topic}?", "What is the future of {topic}?", "How is {topic} used today?",
    "Is it true that {animal}s can sleep while they move?",
]

# Templates of code, by language.
CODE_TASKS = _list("""
reverses a string, counts the vowels in a string, checks whether a word is a palindrome, checks whether a number is prime,
prints the first twenty prime numbers, computes the factorial of a number, computes the greatest common divisor of two numbers,
prints the Fibonacci numbers below 1000, finds the largest number in a list, finds the smallest number in a list,
sorts a list of numbers, merges two sorted lists, removes duplicates from a list, counts how often each word occurs in a text,
converts Celsius to Fahrenheit, converts a number to binary, computes the average of a list, computes the median of a list,
searches a sorted list by bisection, prints a multiplication table, sums the digits of a number, checks whether a year is a leap
year, finds the longest word in a sentence, capitalizes each word of a sentence, counts the lines of a file, reads numbers from
a file and adds them, splits a line at its commas, joins a list of words with commas, rotates a list by n places, finds two
numbers of a list that add up to a target, checks whether two words are anagrams, draws a triangle of stars, simulates a dice
roll, plays rock paper scissors, generates a random password, implements a stack, implements a queue, implements a linked list,
computes compound interest, multiplies two matrices, transposes a matrix""")

TABLES = _list("""
orders, customers, employees, products, books, students, courses, flights, invoices, payments, sensors, recipes, players, songs,
movies""")

COLUMNS = _list("""
price, name, date, country, quantity, age, salary, title, category, rating, city, weight, status, email, year""")

CODE = {
    "C": ["Write a C function that {task}.", "Write a C program that {task}.", "Write a C program that {task}, with comments.",
          "Show me C code that {task}.", "How do I write a C function that {task}?",
          "Write a struct in C for one of the {table} with {column} and {column2}.",
          "Write a C function that compares two {table} by {column} for qsort."],
    "Python": ["Write a Python function that {task}.", "Write a Python program that {task}.",
               "Write a Python function that {task}, and explain it.",
               "Write a short Python script that {task}.", "Python code that {task}, please.",
               "Write a Python class for {table} with {column} and {column2}.",
               "Write a Python unit test for a function that {task}.",
               "How do I read a CSV file of {table} in Python and add up the column {column}?",
               "Write a Python function that groups a list of {table} by {column}."],
    "SQL": ["Write an SQL query that lists all {table} by {column}.",
            "Write an SQL query that counts the {table} for each {column}.",
            "Write an SQL query that finds the ten {table} with the highest {column}.",
            "Write an SQL statement that creates a table of {table} with {column} and {column2}.",
            "Write an SQL query that joins {table} and {table2} and shows {column}.",
            "Write an SQL statement that deletes all {table} whose {column} is empty.",
            "Write an SQL query that shows the average {column} of {table} by {column2}.",
            "Write an SQL statement that adds a column {column} to the table {table}."],
    "shell": ["Write a shell script that {file_task}.", "Write a bash script that {file_task}.",
              "Which shell command {file_task}?",
              "Give me a one-line shell command that {file_task}.", "Write a bash function that {file_task}, with comments."],
}

FILE_TASKS = _list("""
counts the lines of all text files, renames all pictures in a folder by number, finds the ten largest files, deletes files older
than thirty days, makes a backup of a folder with the date in its name, replaces a word in all files of a folder, prints the
third column of a file, checks whether a server answers, shows how much space is left on each disk, lists all users of the
system, watches a log file for errors, converts all file names to lower case, counts the words of a file, sorts a file and
removes duplicate lines, downloads a file and checks its hash, stops when a file does not exist, loops over the numbers from 1
to 10, unpacks all archives in a folder, prints the names of all empty files""")

# Answered in a word or a sentence.
SHORT = [
    "What is the capital of {country}?", "Which language is spoken in {country}?", "On which continent is {country}?",
    "What is the currency of {country}?",
    "What is {a} plus {b}?", "What is {a} times {b}?", "What is {b} squared?", "Is {a} an even number?",
    "Is {a} larger than {b}?",
    "How many days are there in {month}?", "Which month comes after {month}?", "Which season is {month} in?",
    "How many minutes are {b} hours?",
    "What is the plural of {animal}?", "What do you call a young {animal}?", "Is a {animal} a mammal?",
    "Name one thing that a {animal} eats.",
    "What is the opposite of {adjective}?", "Give me a synonym for {adjective}.", "Use the word {adjective} in a sentence.",
    "Spell the word {adjective} backwards.",
    "What colour is {thing}?", "Is {thing} heavy?", "Name three colours.", "Name a famous {job}.",
    "Name two cities in {country}.",
    "Yes or no: is {food} healthy?", "Answer in one word: what is {food} made of?", "In one sentence, what is {topic}?",
    "Define {topic} in one sentence.",
    "Who is {name}?", "What is a {job}?", "Name one tool that a {job} uses.", "Thanks!", "Good morning, {name} here.",
    "OK. And why?", "Can you help me?",
    "What day comes before {day}?", "How do you say {greeting} in {language}?", "Which is larger, {country} or {country2}?",
]

COUNTRIES = _list("""
France, Germany, Italy, Spain, Portugal, Austria, Poland, Hungary, Greece, Turkey, Egypt, Kenya, Nigeria, South Africa, India,
China, Japan, South Korea, Thailand, Vietnam, Indonesia, Australia, New Zealand, Canada, Mexico, Cuba, Peru, Chile, Argentina,
Brazil, Norway, Sweden, Finland, Denmark, Iceland, Ireland, Scotland, Belgium, the Netherlands, Switzerland, Ukraine, Romania,
Bulgaria, Serbia, Croatia, Iran, Pakistan, Nepal""")

ADJECTIVES = _list("""
hot, cold, fast, slow, big, small, happy, sad, old, young, bright, dark, heavy, light, strong, weak, rich, poor, early, late,
hard, soft, loud, quiet, clean, dirty, full, empty, deep, shallow, wide, narrow, brave, honest, polite, careful, simple,
ancient, modern, sweet, bitter, generous""")

THINGS = _list("""
the sky, the sun, grass, snow, a banana, a lemon, an orange, a strawberry, coal, blood, milk, gold, a stop sign, an elephant, a
frog, a violet, the sea""")

MONTHS = _list("January, February, March, April, May, June, July, August, September, October, November, December")
DAYS = _list("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
GREETINGS = _list("hello, thank you, good night, goodbye, please, yes, friend, water, bread, house")
LANGUAGES = _list("French, German, Spanish, Italian, Portuguese, Dutch, Swedish, Polish, Japanese, Latin")

# Subjects, predicates and tails of simple sentences; any combination is one.
SENTENCES = {
    "de": (
        ["Der Lehrer", "Die Nachbarin", "Mein Onkel", "Unsere Tochter", "Der junge Arzt", "Die alte Frau", "Ein Freund von mir",
         "Der Gärtner",
         "Die Köchin", "Mein Kollege", "Der Bürgermeister", "Die Studentin", "Das Mädchen", "Der Hund", "Die Verkäuferin",
         "Der Fahrer", "Sie", "Er"],
        ["kauft einen neuen Mantel", "liest ein spannendes Buch", "wartet auf den Bus", "schreibt einen langen Brief",
         "kocht eine heiße Suppe",
         "repariert das kaputte Fenster", "sucht den Schlüssel", "trinkt eine Tasse Tee", "arbeitet im Garten",
         "singt ein altes Lied",
         "spricht mit dem Polizisten", "hat das Licht vergessen", "will nach Hause gehen", "besucht seine Eltern",
         "lernt eine fremde Sprache",
         "bezahlt die Rechnung", "öffnet die Tür", "hört dem Regen zu", "hat viele Fragen gestellt", "braucht ein wenig Ruhe"],
        ["am Morgen", "im Winter", "vor dem Bahnhof", "mit großer Freude", "ohne ein Wort zu sagen", "seit drei Jahren",
         "in der kleinen Stadt",
         "nach der Arbeit", "trotz der Kälte", "wegen des schlechten Wetters", "bis spät in die Nacht", "jeden Dienstag",
         "auf dem Land",
         "zusammen mit den Kindern", "so spät wie immer", "ohne Hilfe", "kurz vor dem Fest", "zum ersten Mal"]),
    "fr": (
        ["Le professeur", "Ma voisine", "Mon oncle", "Notre fille", "Le jeune médecin", "La vieille dame", "Un de mes amis",
         "Le jardinier",
         "La cuisinière", "Mon collègue", "Le maire", "L'étudiante", "La petite fille", "Le chien", "La vendeuse",
         "Le chauffeur", "Elle", "Il"],
        ["achète un nouveau manteau", "lit un livre passionnant", "attend le bus", "écrit une longue lettre",
         "prépare une soupe chaude",
         "répare la fenêtre cassée", "cherche la clé", "boit une tasse de thé", "travaille dans le jardin",
         "chante une vieille chanson",
         "parle avec le policier", "a oublié la lumière", "veut rentrer à la maison", "rend visite à ses parents",
         "apprend une langue étrangère",
         "paie la facture", "ouvre la porte", "écoute la pluie", "a posé beaucoup de questions", "a besoin d'un peu de repos"],
        ["le matin", "en hiver", "devant la gare", "avec une grande joie", "sans dire un mot", "depuis trois ans",
         "dans la petite ville",
         "après le travail", "malgré le froid", "à cause du mauvais temps", "jusque tard dans la nuit", "chaque mardi",
         "à la campagne",
         "avec les enfants", "parce qu'il est très tard", "bien que personne ne soit là", "avant l'arrivée des invités",
         "pour la première fois"]),
    "es": (
        ["El profesor", "Mi vecina", "Mi tío", "Nuestra hija", "El joven médico", "La anciana", "Un amigo mío", "El jardinero",
         "La cocinera",
         "Mi compañero", "El alcalde", "La estudiante", "La niña", "El perro", "La vendedora", "El conductor", "Ella", "Él"],
        ["compra un abrigo nuevo", "lee un libro interesante", "espera el autobús", "escribe una carta larga",
         "prepara una sopa caliente",
         "repara la ventana rota", "busca la llave", "bebe una taza de té", "trabaja en el jardín", "canta una canción antigua",
         "habla con el policía", "olvidó apagar la luz", "quiere volver a casa", "visita a sus padres",
         "aprende un idioma extranjero",
         "paga la cuenta", "abre la puerta", "escucha la lluvia", "hizo muchas preguntas", "necesita un poco de descanso"],
        ["por la mañana", "en invierno", "delante de la estación", "con mucha alegría", "sin decir una palabra",
         "desde hace tres años",
         "en la pequeña ciudad", "después del trabajo", "a pesar del frío", "por el mal tiempo", "hasta muy tarde",
         "todos los martes",
         "en el campo", "junto con los niños", "porque es muy tarde", "aunque no hay nadie",
         "antes de que lleguen los invitados", "por primera vez"]),
    "it": (
        ["Il professore", "La mia vicina", "Mio zio", "Nostra figlia", "Il giovane medico", "La vecchia signora",
         "Un mio amico", "Il giardiniere",
         "La cuoca", "Il mio collega", "Il sindaco", "La studentessa", "La bambina", "Il cane", "La commessa", "L'autista",
         "Lei", "Lui"],
        ["compra un cappotto nuovo", "legge un libro avvincente", "aspetta l'autobus", "scrive una lunga lettera",
         "prepara una zuppa calda",
         "ripara la finestra rotta", "cerca la chiave", "beve una tazza di tè", "lavora in giardino",
         "canta una vecchia canzone",
         "parla con il poliziotto", "ha dimenticato la luce accesa", "vuole tornare a casa", "visita i genitori",
         "impara una lingua straniera",
         "paga il conto", "apre la porta", "ascolta la pioggia", "ha fatto molte domande", "ha bisogno di un po' di riposo"],
        ["di mattina", "in inverno", "davanti alla stazione", "con grande gioia", "senza dire una parola", "da tre anni",
         "nella piccola città",
         "dopo il lavoro", "nonostante il freddo", "a causa del cattivo tempo", "fino a tarda notte", "ogni martedì",
         "in campagna",
         "insieme ai bambini", "perché è molto tardi", "anche se non c'è nessuno", "prima che arrivino gli ospiti",
         "per la prima volta"]),
    "en": (
        ["The teacher", "My neighbour", "Our daughter", "The young doctor", "The old woman", "A friend of mine", "The gardener",
         "The cook",
         "The mayor", "The student", "The girl", "The driver", "She", "He"],
        ["buys a new coat", "reads an exciting book", "waits for the bus", "writes a long letter", "cooks a hot soup",
         "repairs the broken window",
         "looks for the key", "drinks a cup of tea", "works in the garden", "talks to the policeman", "wants to go home",
         "visits the museum",
         "learns a foreign language", "pays the bill", "opens the door", "listens to the rain", "asks many questions"],
        ["in the morning", "in winter", "in front of the station", "with great joy", "without a word", "in the small town",
         "after work",
         "despite the cold", "because of the bad weather", "until late at night", "every Tuesday", "together with the children",
         "for the first time"]),
}
