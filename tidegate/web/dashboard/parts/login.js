// Asks for a login: the page may not see or do what its user wants.
import { html, useState } from "../core/html.js";
import { logIn } from "../core/api.js";
import { reconnect } from "../core/live.js";
import { loadSession } from "../core/session.js";
import { Command, Problem } from "./basics.js";

export function Login() {
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const text = new FormData(event.currentTarget).get("token").trim();
    try {
      await logIn(text);
      await loadSession();
      reconnect();
    } catch (refusal) {
      setError(refusal);
    }
  };
  return html`<div class="card login">
    <form class="body stack" onSubmit=${submit}>
      <h2>Log in</h2>
      <p class="soft">This needs the rights of whoever started the job. This command opens the page logged in:</p>
      <${Command} text="tidegate ui" />
      <label class="field">Or paste the link that it prints, or the token of the REST API
        <input name="token" type="password" autocomplete="off" required />
      </label>
      ${error && html`<${Problem} error=${error} />`}
      <div class="row"><button class="primary">Log in</button></div>
    </form>
  </div>`;
}
