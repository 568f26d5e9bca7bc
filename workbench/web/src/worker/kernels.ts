// The vector kernels of the processor's backend. Go's compiler emits no vector
// instructions, so they are small modules of their own, embedded in the Go
// program and working on its memory; see op/cpu/internal/kern.

type Kernel = (...args: number[]) => number;

/**
 * kernelImports makes the imports named "kern" of a Go program, one function for each that it asks for. They pass calls
 * on to the modules that the program gives to load. memory returns the program's memory, once it runs.
 */
export function kernelImports(program: WebAssembly.Module, memory: () => WebAssembly.Memory): Record<string, Kernel> {
  const imports: Record<string, Kernel> = {
    load(at, length) {
      const mem = memory();
      const bytes = new Uint8Array(mem.buffer, at, length);
      if (!WebAssembly.validate(bytes)) return 0; // a browser without these instructions
      const kernels = new WebAssembly.Instance(new WebAssembly.Module(bytes), { go: { mem } }).exports as Record<string, Kernel>;
      for (const [name, kernel] of Object.entries(kernels)) setters.get(name)?.(kernel);
      return 1;
    },
  };
  const setters = new Map<string, (kernel: Kernel) => void>();
  for (const { module, name } of WebAssembly.Module.imports(program)) {
    if (module !== "kern" || name in imports) continue;
    let kernel: Kernel = () => {
      throw new Error(`kernel ${name} is called before load`);
    };
    setters.set(name, (k) => (kernel = k));
    // A fixed number of parameters, at least as many as any kernel has, is faster than a rest parameter.
    imports[name] = (a, b, c, d, e, f, g, h, i, j) => kernel(a!, b!, c!, d!, e!, f!, g!, h!, i!, j!);
  }
  return imports;
}
