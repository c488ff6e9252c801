/** A resource of FHIR R4, as JSON. */
export interface Resource {
  resourceType: string;
  id?: string;
  [element: string]: unknown;
}

/** What another process needs to use a server. It is plain JSON. */
export interface Facts {
  /** Address of the server, such as `http://localhost:43210`. */
  baseUrl: string;
  /** Base of the FHIR interface. */
  fhirBase: string;
  /** Data folder, for administration commands with `--data`. */
  data: string;
  /** Users and clients of the demo project, with passwords, secrets and keys. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  demo: any;
  /** The program of the server. */
  program: string;
  /** Scopes of the client that the helper uses. */
  scope: string;
  /** Secret of that client. */
  secret: string;
}

/** A server for tests. It ends with the process that started it, however that ends. */
export class Trefoil implements Facts {
  private constructor();

  /**
   * Starts a server on a free port, with the demo project and a client of its own.
   * Rejects with the last lines of the log if the server does not start.
   */
  static start(options?: {
    /** Path of the program; by default the one of this package, or `trefoil` on the PATH. */
    program?: string;
    /** Scopes of the client; by default `system/*.cruds`. */
    scope?: string;
  }): Promise<Trefoil>;

  /** The server that another process started. Only that process can reset or stop it. */
  static attach(facts: Facts): Trefoil;

  readonly facts: Facts;
  readonly baseUrl: string;
  readonly fhirBase: string;
  readonly data: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly demo: any;
  readonly program: string;
  readonly scope: string;
  readonly secret: string;

  /** An access token of the client, for these scopes or for all that it has. */
  token(scope?: string): Promise<string>;

  /** Reads a resource or a search, such as `Patient/p1` or `Patient?family=Marsh`. Rejects unless it is found. */
  get<R extends Resource = Resource>(path: string): Promise<R>;

  /** Stores a resource under its id, or under a new one. Returns what is stored. */
  put<R extends Resource = Resource>(resource: R): Promise<R>;

  /** Starts the server again at the same address, with the demo project only. */
  reset(): Promise<void>;

  /** Stops the server. Nothing of it is left. */
  stop(): Promise<void>;

  [Symbol.asyncDispose](): Promise<void>;
}
