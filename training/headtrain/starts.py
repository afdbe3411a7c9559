"""Beginnings of user turns that the target itself goes on with, so that prompts are of many kinds and each is a new one.

Owns its lists: data only. {l} and {m} stand for programming languages (varied.LANGUAGES), {t} for a subject. An empty
beginning is a turn that is all the target's own.
"""

CODE = r"""\
Write a {l} function that
Write a {l} function that takes
Write a {l} function to
Write a {l} program that
Write a {l} program to
Write a {l} script that
Write a {l} class
Write a {l} class that represents
Write {l} code that
Create a {l} function called
Create a {l} program
Implement a
Implement {t} in {l}
Can you write a {l} function
Please write {l} code
I need a {l} script
I am writing a {l} program that
I have a list of
Given a list of
Given a string
Given an array of integers,
Given two
In {l}, how do I
In {l}, what is
How do I use {l} to
How do I read
How do I write
How do I sort
How can I parse
How do you implement
How would you test
What is the difference between
What does the following {l} code do?\n\n
What is the output of this {l} code?\n\n
What is wrong with this {l} code?\n\n
Explain this {l} code:\n\n
Fix the error in this {l} code:\n\n
Find the bug:\n\n
Improve this function:\n\n
Rewrite this {l} code in {m}:\n\n
Add comments to this code:\n\n
Here is my {l} code:\n\n
Complete the following {l} function:\n\n
Write unit tests for
Write a test for a {l} function that
Write an SQL query that
Write an SQL query to find
Write an SQL statement that
Create an SQL table for
I have a table of
Write a regular expression that
Write a shell script that
Write a bash script to
Write a bash command that
Which Linux command
How do I use git to
Write a Dockerfile
Write a Makefile
Write an HTML page
Create a web page with
Write CSS that
Write a JSON object
Write a REST API
Write a recursive function
Write an algorithm that
Write pseudocode for
What is the time complexity of
Explain the concept of
Explain how {l} handles
Explain how to use
Give an example of a {l}
Give me a simple {l} example of
Show me an example of
Show how to
Define a struct
Define a function
Design a class
Simulate a
Convert a
Use a loop to
Use recursion to
Why does my {l} program
Why is {l}
def
import
for i in
#include
""".splitlines()

SHORT = """\
What is the capital
What is the largest
What is the name of
What is the opposite
What is the meaning of
What is the plural of
What is the chemical
What is the currency
What color
What year
What does the word
What do you call
Who was the first
Who wrote
Who invented
Who discovered
Who is
When was
When did
Where is
Where do
Which country
Which planet
Which animal
Which of these
Which is
How many
How old
How long is
How far is
How much
How tall
Name the
Name a
Name three
Is it
Is the
Are there
Can a
Does a
True or false:
Yes or no:
In one word,
In one sentence,
Define
Give a synonym
Spell
Answer briefly:
How do you say
What is 5
Is 7
""".splitlines()

MATHEMATICS = """\
A train
A car
A shop
A store sells
A farmer has
A rectangle
A circle
A triangle has
A group of
A bag contains
A recipe
If a
If x
If you have
If it takes
Solve
Solve for x:
Solve the equation
Calculate
Calculate the
Find the
Find the value of
Find the area
What is the sum
What is the average of
What is the probability
What is the next number
What percentage
Simplify
Factor
Convert
How many ways
There are
Tom has
Maria
John has
Two
The sum of
The price of
Prove that
""".splitlines()

TALK = r"""\
What is
What are
What are some
What can I
What should I
What happens
What would
How do I
How does
How can I
How did
Why do
Why is
Why did
Who
When
Where
Can you
Could you
Please
Would you
Write a
Write a short
Write a story
Write a poem
Write a letter
Write an email
Write an essay
Write a paragraph
Write a dialogue
Write a summary of
Write about
Explain
Explain how
Explain why
Describe
Describe the
Give me
Give me a list
Give an example
List
List three
Tell me
Tell me about
Compare
Discuss
Summarize
Summarize the following text:\n\n
Read this text and answer the question.\n\n
Translate
Rewrite
Correct
Classify
Suggest
Recommend
Create
Create a
Design
Develop
Generate
Imagine
Make
Plan
Help me
I am
I'm
I have
I want to
I need
I would like
I feel
My
My friend
We
Our
Let's
Do you
Is there
Should I
Hello
Hi
Thank you
In your opinion,
As a
You are
Suppose
{t}
The
""".splitlines()

GROUPS = {"turns-code": CODE, "turns-short": SHORT, "turns-math": MATHEMATICS, "turns-talk": TALK}


def make(rng, group):
    """A beginning of a group."""
    from .varied import LANGUAGES, SUBJECTS
    text = rng.choice(GROUPS[group]).replace("\\n", "\n")
    subject = rng.choice(SUBJECTS)
    return text.replace("{l}", rng.choice(LANGUAGES)).replace("{m}", rng.choice(LANGUAGES)).replace("{t}", subject)
