/* Points of search results; levels of names are those of ranking.py. A word in a title is worth 15. */
var Scorer = {
  objNameMatch: 40,
  objPartialMatch: 6,
  objPrio: { 2: 4, 3: 3.5, 4: 3, 5: 2.5, 6: 2, 7: 1.5, 8: 1, 9: 0.5, 10: -30, 11: -32 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
