// What the engine refuses, for showing beside the field at fault.
import { ApiError } from "../api/client";
import { m } from "../i18n";
import type { Child } from "./dom";
import { engineWords } from "./parts";

export interface Refusal {
  field: string;
  code: string;
  message: string;
}

/** The field that an error is about; a name that is taken is about the field "name". */
export function refusalOf(error: unknown): Refusal | undefined {
  if (!(error instanceof ApiError)) return undefined;
  const field = error.field ?? (error.code === "exists" ? "name" : undefined);
  return field ? { field, code: error.code, message: error.message } : undefined;
}

/** A taken name in the language of the page, anything else in the engine's words. */
export function refusalText(r: Refusal): Child {
  return r.code === "exists" ? m.errors.exists : engineWords(r.message);
}
