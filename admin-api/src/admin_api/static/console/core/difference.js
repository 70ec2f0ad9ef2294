/** What is different between two texts, line by line. */

/** Pairs of lines that are compared; of longer texts all lines are different. */
const PAIRS_MAX = 4_000_000;

/**
 * Return the lines of both texts in order, each with "-" if the first text alone has it, "+" if the second alone has it.
 * @param {string} before @param {string} after @returns {[sign: string, line: string][]}
 */
export function difference(before, after) {
  const [one, two] = [before.split("\n"), after.split("\n")];
  const isLong = one.length * two.length > PAIRS_MAX;
  // For each pair of places, how many lines the rests have in common.
  const common = Array.from(isLong ? [] : [...one, ""], () => new Uint16Array(two.length + 1));
  for (let i = common.length - 2; i >= 0; i -= 1) {
    for (let j = two.length - 1; j >= 0; j -= 1) common[i][j] = one[i] === two[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  /** @type {[string, string][]} */
  const found = [];
  for (let [i, j] = [0, 0]; i < one.length || j < two.length; ) {
    const isBoth = !isLong && one[i] === two[j];
    const isOld = isBoth || j === two.length || (i < one.length && (isLong || common[i + 1][j] >= common[i][j + 1]));
    found.push(isBoth ? [" ", one[i]] : isOld ? ["-", one[i]] : ["+", two[j]]);
    if (isOld) i += 1;
    if (isBoth || !isOld) j += 1;
  }
  return found;
}
