/* check_text.h - the text of the self-check, unless another one is given: plain English, a list, some code. */
#ifndef AE_CONVERT_HEAD_CHECK_TEXT_H
#define AE_CONVERT_HEAD_CHECK_TEXT_H

static const char ae_convert_check_text[] =
    "The water cycle describes how water moves above, on, and below the surface of the Earth. When the sun heats the oceans, "
    "some of the water evaporates and rises into the air as vapor. As the air rises, it cools, and the vapor condenses into "
    "small drops that form clouds. When the drops become large and heavy enough, they fall back to the ground as rain or "
    "snow. Some of this water flows into rivers and lakes, and some of it sinks into the ground, where plants can take it up "
    "through their roots. In the end, most of the water returns to the ocean, and the cycle begins again.\n\n"
    "Here are three things that you can do to save water at home:\n"
    "1. Turn off the tap while you brush your teeth.\n"
    "2. Take a short shower instead of a bath.\n"
    "3. Water the plants in the morning, when it is cool.\n\n"
    "The following function returns the sum of all numbers in a list:\n\n"
    "def sum_list(numbers):\n"
    "    total = 0\n"
    "    for number in numbers:\n"
    "        total += number\n"
    "    return total\n\n"
    "The function starts with a total of zero. It then goes through the list and adds each number to the total. At the end, it "
    "returns the total. For example, if the list is [1, 2, 3], the function returns 6.\n\n"
    "One day, a little girl named Anna went for a walk in the forest with her dog. The dog ran ahead and began to bark. Anna "
    "ran after him and saw a small bird that had fallen out of its nest. She picked up the bird, put it back into the nest, "
    "and waited until the mother came back. Then she and her dog went home, and she told her mother about the little bird.\n";

#endif
