// Trees of operators and modules, after the tree view pattern of the WAI-ARIA practices.

/** Fill an element with a tree of [name, time, calls, device time, children]; children are made when first shown. */
function showTree(element, root, hasDevice) {
  element.replaceChildren(treeHead(hasDevice), ...root[4].map((node) => treeItem(node, 1, hasDevice)));
  const first = element.querySelector('[role="treeitem"]');
  if (first) first.tabIndex = 0;
}

function treeHead(hasDevice) {
  const row = document.createElement("div");
  row.className = "row head";
  // Each item's label says what its numbers are.
  row.setAttribute("aria-hidden", "true");
  row.append(...["", hasDevice ? "Card" : "Calls", "Host"].map(cell));
  return row;
}

function cell(text) {
  const span = document.createElement("span");
  span.textContent = text;
  return span;
}

function treeItem(node, level, hasDevice) {
  const [name, time, calls, deviceTime, children] = node;
  const item = document.createElement("div");
  item.setAttribute("role", "treeitem");
  item.setAttribute("aria-level", level);
  // Else the label is the text of the item and of all that it contains.
  const host = `${formatTime(time)} on the host, ${calls} ${calls === 1 ? "call" : "calls"}`;
  item.setAttribute("aria-label", `${shortName(name)}: ${hasDevice ? `${formatTime(deviceTime)} on the card, ` : ""}${host}`);
  item.tabIndex = -1;
  const row = document.createElement("div");
  row.className = "row";
  row.style.paddingLeft = `${Math.min(level - 1, 12) * 0.9}rem`;
  row.append(cell(shortName(name)), cell(hasDevice ? formatTime(deviceTime) : calls), cell(formatTime(time)));
  row.title = `${name}, ${calls} calls`;
  item.append(row);
  if (children.length) {
    item.setAttribute("aria-expanded", "false");
    item.expand = (isExpanded) => {
      if (isExpanded && !item.group) {
        item.group = document.createElement("div");
        item.group.setAttribute("role", "group");
        item.group.append(...children.map((child) => treeItem(child, level + 1, hasDevice)));
        item.append(item.group);
      }
      item.setAttribute("aria-expanded", isExpanded);
      item.group?.classList.toggle("hidden", !isExpanded);
    };
  }
  row.addEventListener("click", () => {
    focusItem(item);
    item.expand?.(item.getAttribute("aria-expanded") !== "true");
  });
  return item;
}

function focusItem(item) {
  const tree = item.closest('[role="tree"]');
  for (const each of tree.querySelectorAll('[tabindex="0"]')) each.tabIndex = -1;
  item.tabIndex = 0;
  item.focus();
}

function addTreeKeys(tree) {
  tree.addEventListener("keydown", (event) => {
    const items = [...tree.querySelectorAll('[role="treeitem"]')].filter((each) => each.offsetParent !== null);
    const item = event.target.closest('[role="treeitem"]');
    const index = items.indexOf(item);
    if (index < 0) return;
    const isExpanded = item.getAttribute("aria-expanded");
    const moves = {
      ArrowDown: () => items[index + 1],
      ArrowUp: () => items[index - 1],
      Home: () => items[0],
      End: () => items.at(-1),
      ArrowRight: () => {
        if (isExpanded === "true") return items[index + 1];
        item.expand?.(true);
        return item;
      },
      ArrowLeft: () => {
        if (isExpanded === "true") item.expand(false);
        else return item.parentElement.closest('[role="treeitem"]');
        return item;
      },
      Enter: () => { item.expand?.(isExpanded !== "true"); return item; },
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    const target = moves[event.key]();
    if (target) focusItem(target);
  });
}
