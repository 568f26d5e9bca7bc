// Saving a file of the engine to where the browser puts downloads. The request
// needs the token in its head, so a plain link will not do.
import { api } from "../state/engine";

export async function download(path: string, fileName: string): Promise<void> {
  saveBlob(await api.download(path), fileName);
}

export function saveBlob(blob: Blob, fileName: string): void {
  const url = URL.createObjectURL(blob);
  const a = document.createElement("a");
  a.href = url;
  a.download = fileName;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
