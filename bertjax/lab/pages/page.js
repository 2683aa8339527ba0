"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

// The place of the pointer in a picture, in units of its box.
function place(event, picture, width, height) {
  const box = picture.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width * width,
          (event.clientY - box.top) / box.height * height];
}

// The index of the number nearest to `wanted`, of numbers that ascend.
function nearest(numbers, wanted) {
  let low = 0, high = numbers.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < wanted) low = middle; else high = middle;
  }
  return Math.abs(numbers[low] - wanted) <= Math.abs(numbers[high] - wanted) ? low : high;
}

for (const picture of document.querySelectorAll("svg[data-chart]")) {
  const {view, box, over, curves} = data.charts[picture.dataset.chart];
  const [left, right, bottom, top] = box;
  const pointer = document.createElementNS("http://www.w3.org/2000/svg", "path");
  pointer.setAttribute("class", "pointer");
  picture.append(pointer);
  const here = picture.closest("figure").querySelector(".here");
  picture.addEventListener("pointermove", event => {
    const {width, height} = picture.viewBox.baseVal;
    const [x] = place(event, picture, width, height);
    const step = view[0] + (x - left) / (right - left) * (view[1] - view[0]);
    const found = curves.map(({name, steps, values}) => {
      const at = nearest(steps, step);
      return {name, step: steps[at], value: values[at]};
    });
    const gap = each => Math.abs(each.step - step);
    const chosen = found.reduce((a, b) => gap(b) < gap(a) ? b : a).step;
    const place_x = left + (chosen - view[0]) / (view[1] - view[0]) * (right - left);
    pointer.setAttribute("d", `M${place_x} ${bottom}V${top}`);
    here.textContent = found.map(each => {
      const value = each.value === null ? "not finite" : +each.value.toPrecision(5);
      return `${each.name} ${value} (${over} ${each.step.toLocaleString("en")})`;
    }).join("; ");
  });
  picture.addEventListener("pointerleave", () => pointer.removeAttribute("d"));
}

// A picture of attention: a pixel for each pair of tokens, the darker the more.
for (const picture of document.querySelectorAll("img[data-text]")) {
  const tokens = data.texts[picture.dataset.text];
  const here = picture.closest("figure").querySelector(".here");
  const canvas = document.createElement("canvas");
  picture.addEventListener("pointermove", event => {
    const size = tokens.length;
    canvas.width = canvas.height = size;
    const pen = canvas.getContext("2d", {willReadFrequently: true});
    pen.drawImage(picture, 0, 0);
    const [to, from] = place(event, picture, size, size)
      .map(each => Math.min(Math.max(Math.floor(each), 0), size - 1));
    const share = 1 - pen.getImageData(to, from, 1, 1).data[0] / 255;
    here.textContent = `${picture.alt}: ${tokens[from]} \u2192 ${tokens[to]} ${share.toFixed(2)}`;
  });
}

// A served page loads itself again when the folder has changed.
if (data.renews && location.protocol !== "file:") {
  const renew = async () => {
    try {
      const answer = await fetch("state");
      if (await answer.text() !== data.state) location.reload();
    } catch {
      document.getElementById("renewal").textContent = "The program that renews this page has ended.";
      clearInterval(timer);
    }
  };
  const timer = setInterval(renew, data.renews * 1000);
}
