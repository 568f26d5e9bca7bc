// The dedicated worker that the engine runs in: takes the page's requests, as
// docs/api.md has them under "In the tab", and hands them to the Go program.
// The page's own thread does nothing but draw.
import { type AbortMessage, Exchange, type RequestMessage } from "./exchange";
import { takeTurn } from "./lock";
import { runProgram } from "./program";

interface Refusal {
  status: number;
  code: string;
  message: string;
}

const open = new Map<number, Exchange>();
const waiting: Exchange[] = []; // until the program is there
let serve: ((exchange: Exchange) => void) | null = null;
let refusal: Refusal | null = null;

function refuse(exchange: Exchange, { status, code, message }: Refusal) {
  open.delete(exchange.id);
  exchange.refuse(status, code, message);
}

/** refuseAll answers what waits, and all that comes until the program is there. */
function refuseAll(why: Refusal) {
  refusal = why;
  for (const exchange of waiting.splice(0)) refuse(exchange, why);
}

function failed(why: string) {
  serve = null;
  const message = why.replace(/^Error: /, "");
  refuseAll({ status: 500, code: "internal", message });
  for (const exchange of open.values()) refuse(exchange, refusal!);
}

addEventListener("message", ({ data }: MessageEvent<RequestMessage | AbortMessage>) => {
  if (data.abort) {
    open.get(data.id)?.abort();
    return;
  }
  const exchange = new Exchange(data, () => open.delete(data.id));
  open.set(data.id, exchange);
  if (serve) serve(exchange);
  else if (refusal) refuse(exchange, refusal);
  else waiting.push(exchange);
});

async function start() {
  await takeTurn(() =>
    refuseAll({
      status: 409,
      code: "busy",
      message: "the workbench is open in another tab or window of this browser: go on there, or close it and try again here",
    }),
  );
  refusal = null;
  serve = await runProgram(failed);
  for (const exchange of waiting.splice(0)) if (!exchange.aborted) serve(exchange);
}

start().catch((error) => failed(String(error)));
